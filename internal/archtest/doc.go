// Package archtest holds the house rules that a test can check: what a package
// may link, which way imports point, how long files and functions may be, which
// functions need an allocation test, and what a repository must not contain.
//
// It has no code of its own, only tests. Each rule is a function from source
// text (or from the answer of `go list`) to findings, so each rule also runs
// on planted faults, which shows that it can fail.
package archtest
