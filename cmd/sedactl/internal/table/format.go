package table

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Count returns n with commas between groups of three digits.
func Count[N int | int64 | uint64](n N) string {
	s := strconv.FormatUint(uint64(max(n, 0)), 10)
	if n < 0 {
		// Negating by hand keeps the least value, which has no positive one.
		s = strconv.FormatUint(-uint64(n), 10)
	}
	var b strings.Builder
	if n < 0 {
		b.WriteByte('-')
	}
	for i, r := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Rate returns a number per second: whole from 100 on, with a decimal below.
// What is not a number, or negative, counts as 0.
func Rate(perSecond float64) string {
	switch {
	case !(perSecond > 0):
		return "0"
	case perSecond < 99.95:
		return strconv.FormatFloat(perSecond, 'f', 1, 64)
	case perSecond > math.MaxInt64/2:
		return "∞"
	}
	return Count(int64(math.Round(perSecond)))
}

// Duration returns d in its natural unit with three figures, such as 812ns,
// 1.24ms, 48.3ms or 1m40s. A negative d counts as 0.
func Duration(d time.Duration) string {
	switch {
	case d <= 0:
		return "0"
	case d < time.Microsecond:
		return strconv.FormatInt(int64(d), 10) + "ns"
	case d < time.Millisecond:
		return figures(float64(d)/float64(time.Microsecond), "µs", "ms")
	case d < time.Second:
		return figures(float64(d)/float64(time.Millisecond), "ms", "s")
	case d < 100*time.Second:
		return figures(float64(d)/float64(time.Second), "s", "s")
	default:
		return d.Round(time.Second).String()
	}
}

// figures writes v with three figures; what rounds to 1000 goes to next.
func figures(v float64, unit, next string) string {
	switch {
	case v < 9.995:
		return strconv.FormatFloat(v, 'f', 2, 64) + unit
	case v < 99.95:
		return strconv.FormatFloat(v, 'f', 1, 64) + unit
	case v < 999.5:
		return strconv.FormatFloat(v, 'f', 0, 64) + unit
	}
	return "1.00" + next
}
