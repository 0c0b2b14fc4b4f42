package main

import (
	"strings"
	"time"
)

// form names the layout of a log line.
type form string

// The forms that parse knows. formAuto chooses for each line by its first
// bytes, so that one file may mix them.
const (
	formAuto      form = "auto"
	formApache    form = "apache"
	formHDFS      form = "hdfs"
	formZooKeeper form = "zookeeper"
)

// record is what the report counts of one line.
type record struct {
	form      form
	level     string // as written in the line
	component string // see the parser of each form
}

// malformedError says why a line does not have its form. It is the text of the
// line's dead letter.
type malformedError string

// Error returns the reason.
func (m malformedError) Error() string { return string(m) }

// Reasons that do not depend on the form.
const (
	errEmpty   = malformedError("empty line")
	errNUL     = malformedError("contains a NUL byte")
	errUnknown = malformedError("not in a known form")
)

// parse reads one line, given without its line ending. An error is always a
// malformedError.
func parse(f form, text string) (record, error) {
	if text == "" {
		return record{}, errEmpty
	}
	if strings.IndexByte(text, 0) >= 0 {
		return record{}, errNUL
	}
	if f == formAuto {
		f = detect(text)
	}
	switch f {
	case formApache:
		return parseApache(text)
	case formHDFS:
		return parseHDFS(text)
	case formZooKeeper:
		return parseZooKeeper(text)
	default:
		return record{}, errUnknown
	}
}

// detect chooses the form from the first bytes: Apache starts with a bracket,
// HDFS with six digits and a space, ZooKeeper with four digits and a dash. It
// returns formAuto when none fits.
func detect(text string) form {
	switch {
	case text[0] == '[':
		return formApache
	case len(text) > 6 && digits(text[:6]) && text[6] == ' ':
		return formHDFS
	case len(text) > 4 && digits(text[:4]) && text[4] == '-':
		return formZooKeeper
	default:
		return formAuto
	}
}

const apacheStamp = "Mon Jan 02 15:04:05 2006"

// parseApache reads the error log of the 2.0 and 2.2 servers:
//
//	[Mon Jan 02 15:04:05 2006] [level] message
//
// That form names no module, but modules put their name first, so the
// component is the first word of the message without a trailing colon
// ("mod_jk", "workerEnv.init()"). An error of a request has the client's
// address in that place, "[client 192.0.2.1]": those count as "client".
func parseApache(text string) (record, error) {
	stamp, rest, ok := strings.Cut(strings.TrimPrefix(text, "["), "] [")
	if !ok || text[0] != '[' {
		return record{}, malformedError("apache: no [time] [level]")
	}
	if !stamped(apacheStamp, stamp) {
		return record{}, malformedError("apache: bad time")
	}
	level, message, ok := strings.Cut(rest, "]")
	if !ok || !apacheLevel(level) {
		return record{}, malformedError("apache: unknown level")
	}
	if !strings.HasPrefix(message, " ") {
		return record{}, malformedError("apache: no message")
	}
	word := strings.TrimLeft(message, " \t")
	if inner, isGroup := strings.CutPrefix(word, "["); isGroup {
		word = inner
	}
	if end := strings.IndexAny(word, " \t\r]"); end >= 0 {
		word = word[:end]
	}
	word = strings.TrimSuffix(word, ":")
	if word == "" {
		return record{}, malformedError("apache: no component")
	}
	return record{form: formApache, level: level, component: word}, nil
}

func apacheLevel(s string) bool {
	switch s {
	case "emerg", "alert", "crit", "error", "warn", "notice", "info", "debug":
		return true
	default:
		return false
	}
}

const hdfsStamp = "060102 150405"

// parseHDFS reads the layout of Hadoop's file system daemons:
//
//	yymmdd hhmmss thread LEVEL logger: message
//
// The component is the logger.
func parseHDFS(text string) (record, error) {
	n := len(hdfsStamp)
	if len(text) <= n || text[n] != ' ' || !stamped(hdfsStamp, text[:n]) {
		return record{}, malformedError("hdfs: bad time")
	}
	thread, rest, ok := strings.Cut(text[n+1:], " ")
	if !ok || !digits(thread) {
		return record{}, malformedError("hdfs: bad thread number")
	}
	level, rest, ok := strings.Cut(rest, " ")
	if !ok || !log4jLevel(level) {
		return record{}, malformedError("hdfs: unknown level")
	}
	logger, _, ok := strings.Cut(rest, ":")
	if !ok || !className(logger) {
		return record{}, malformedError("hdfs: no logger")
	}
	return record{form: formHDFS, level: level, component: logger}, nil
}

const zooKeeperStamp = "2006-01-02 15:04:05,000"

// parseZooKeeper reads ZooKeeper's default layout:
//
//	yyyy-mm-dd hh:mm:ss,mmm - LEVEL [thread:Class@line] - message
//
// The level is padded with spaces to five. The component is the class. A
// thread's name may itself hold brackets, colons and at signs, so the class is
// looked for from the right end of the bracket.
func parseZooKeeper(text string) (record, error) {
	n := len(zooKeeperStamp)
	if len(text) <= n || !stamped(zooKeeperStamp, text[:n]) {
		return record{}, malformedError("zookeeper: bad time")
	}
	rest, ok := strings.CutPrefix(text[n:], " - ")
	if !ok {
		return record{}, malformedError("zookeeper: no dash after the time")
	}
	level, rest, ok := strings.Cut(rest, " ")
	if !ok || !log4jLevel(level) {
		return record{}, malformedError("zookeeper: unknown level")
	}
	rest, ok = strings.CutPrefix(strings.TrimLeft(rest, " "), "[")
	if !ok {
		return record{}, malformedError("zookeeper: no [thread:class@line]")
	}
	place, _, ok := strings.Cut(rest, "] - ")
	if !ok {
		return record{}, malformedError("zookeeper: [thread:class@line] does not end")
	}
	// With no colon the index is -1 and the whole bracket is looked at, which
	// a bracket without a thread's name would be.
	colon := strings.LastIndexByte(place, ':')
	class, number, ok := strings.Cut(place[colon+1:], "@")
	if colon < 0 || !ok || !className(class) || number != "?" && !digits(number) {
		return record{}, malformedError("zookeeper: no class@line")
	}
	return record{form: formZooKeeper, level: level, component: class}, nil
}

func log4jLevel(s string) bool {
	switch s {
	case "TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL":
		return true
	default:
		return false
	}
}

// stamped reports whether s is a time in the layout, at exactly its length:
// package time would also take fractions of a second that no layout names.
func stamped(layout, s string) bool {
	if len(s) != len(layout) {
		return false
	}
	_, err := time.Parse(layout, s)
	return err == nil
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// className reports whether s could be the name of a Java class or logger.
func className(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (c < '0' || c > '9') && c != '.' && c != '$' && c != '_' && c != '-' {
			return false
		}
	}
	return s != ""
}
