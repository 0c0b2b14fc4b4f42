package shedhttp

import (
	"net/http"
	"strconv"
	"time"
)

// HeaderTimeout is a Config.Timeout that reads a header such as
// "X-Request-Timeout": a Go duration ("1.5s", "250ms") or a number of seconds,
// above 0 and at most a year. Anything else counts as not known.
func HeaderTimeout(name string) func(*http.Request) time.Duration {
	return func(r *http.Request) time.Duration { return parseTimeout(r.Header.Get(name)) }
}

func parseTimeout(text string) time.Duration {
	if text == "" || len(text) > 64 {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		s, err := strconv.ParseFloat(text, 64)
		if err != nil || !(s > 0 && s <= maxTimeout.Seconds()) {
			return 0
		}
		d = time.Duration(s * float64(time.Second))
	}
	if d <= 0 || d > maxTimeout {
		return 0
	}
	return d
}
