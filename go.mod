module github.com/sedabus/seda

go 1.26
