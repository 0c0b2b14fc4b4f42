package rate_test

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/sedabus/seda/shedder"
	"github.com/sedabus/seda/shedder/rate"
)

// FuzzAdmit gives a policy any clock, key and order of calls, and holds it to
// its promise: never more than the burst and what the forward steps of the
// clock bring, with one token of allowance for rounding.
func FuzzAdmit(f *testing.F) {
	f.Add(10.0, 5, uint16(3), []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
	f.Add(0.5, 0, uint16(0), []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 1, 1})
	f.Fuzz(func(t *testing.T, perSecond float64, burst int, keys uint16, calls []byte) {
		c := rate.Config{Rate: perSecond, Burst: burst, By: rate.ByKey, EachRate: perSecond, EachBurst: burst, MaxKeys: int(keys % 8)}
		p, err := rate.New(c)
		if err != nil {
			return
		}
		c = p.Config()
		var r shedder.Request
		net, brought, started := 0, 0.0, false
		for len(calls) >= 9 {
			now := time.Duration(binary.LittleEndian.Uint64(calls))
			r.Key = string('a' + rune(calls[8]>>4))
			if started && now > r.Now {
				brought += (float64(now) - float64(r.Now)) / float64(time.Second) * perSecond
			}
			r.Now, started = now, true
			undo := calls[8]&1 == 1
			calls = calls[9:]
			v := p.Admit(&r)
			if v.Action == shedder.Admit {
				net++
				if undo {
					p.Undo(&r)
					net--
				}
			} else if v.RetryAfter <= 0 || v.RetryAfter > 366*24*time.Hour || v.Limit != perSecond || !(v.Value >= 1) || math.IsInf(v.Value, 0) {
				t.Fatalf("%+v", v)
			}
			if most := float64(c.Burst) + brought + 1; float64(net) > most {
				t.Fatalf("%d let in, at most %v", net, most)
			}
			if k := p.Keys(); k.Remembered > k.Max {
				t.Fatalf("%+v", k)
			}
		}
	})
}
