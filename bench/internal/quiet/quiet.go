// Package quiet finds out how much of the machine other processes take.
package quiet

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// tick is the unit of /proc/stat on every Linux system in use.
const tick = 10 * time.Millisecond

// Reading is the CPU time of the whole machine since it started.
type Reading struct {
	Busy  time.Duration // worked by any process, or stolen by the host
	Total time.Duration // Busy and idle
}

// Read takes a reading of the machine. It fails where there is no /proc/stat.
func Read() (Reading, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return Reading{}, fmt.Errorf("quiet: %w", err)
	}
	return parse(text)
}

// Others is the share of the machine, 0 to 1, that was taken between two
// readings by anything but a process that used own CPU time. The resolution of
// the readings is 10 ms for each core.
func Others(before, after Reading, own time.Duration) float64 {
	total := after.Total - before.Total
	if total <= 0 {
		return 0
	}
	return min(1, max(0, float64(after.Busy-before.Busy-own)/float64(total)))
}

// parse reads the first line: "cpu" and the ticks spent as user, nice, system,
// idle, iowait, irq, softirq and steal; guests follow, which user includes.
func parse(text []byte) (Reading, error) {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	f := bytes.Fields(line)
	const idle, iowait, steal = 3, 4, 7
	if len(f) < 1+iowait+1 || string(f[0]) != "cpu" {
		return Reading{}, errors.New("quiet: /proc/stat does not start with the sum of all cpus")
	}
	var r Reading
	for i, word := range f[1:] {
		if i > steal {
			break
		}
		n, err := strconv.ParseInt(string(word), 10, 64)
		if err != nil {
			return Reading{}, fmt.Errorf("quiet: /proc/stat: %w", err)
		}
		d := time.Duration(n) * tick
		r.Total += d
		if i != idle && i != iowait {
			r.Busy += d
		}
	}
	return r, nil
}
