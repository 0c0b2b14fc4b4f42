// Package layout says which shard a key belongs to, for package shard and for the
// sharded mode of the bus.
package layout

// MaxShards is the largest number of shards of a Layout.
const MaxShards = 1024

const (
	slotBits = 12
	slots    = 1 << slotBits // into which the hashes fall; each belongs to one shard
)

// Layout says which of n shards a key belongs to. It depends on n alone, so it
// is the same in every process and after every series of changes. Going from m
// to m+1 shards moves slots to the new shard only, and the shards' numbers of
// slots differ by at most one. It is immutable and safe for concurrent use.
type Layout struct {
	n     int
	owner [slots]uint16
}

// NewLayout returns the layout of n shards, with n held to 1 to [MaxShards].
func NewLayout(n int) *Layout {
	l := &Layout{n: min(max(n, 1), MaxShards)}
	var held [MaxShards]int
	held[0] = slots
	for m := 1; m < l.n; m++ { // shard m joins: the others give what they hold above its share
		share := slots / (m + 1)
		spare := slots % (m + 1) // so many shards keep one more
		var keep [MaxShards]int
		for s := range m {
			keep[s] = share
			if held[s] > share && spare > 0 {
				keep[s]++
				spare--
			}
		}
		for i := range l.owner {
			if s := l.owner[i]; int(s) < m && held[s] > keep[s] {
				held[s]--
				held[m]++
				l.owner[i] = uint16(m)
			}
		}
	}
	return l
}

// Shards returns the number of shards.
func (l *Layout) Shards() int { return l.n }

// Of returns the shard, from 0 on, of a hash whose upper bits are well mixed,
// as [Hash] gives.
//
// hot: 0 allocs, no locks, no time.
func (l *Layout) Of(hash uint64) int { return int(l.owner[hash>>(64-slotBits)]) }

// Hash returns the hash of a key: FNV-1a of 64 bits with the final mix of
// MurmurHash3, never 0. It is stable: the same for ever, in every process. It
// keeps out nobody who chooses keys so that they fall on one shard.
//
// hot: 0 allocs, no locks, no time.
func Hash(key string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	return nonZero(mix(h))
}

// HashUint64 is [Hash] of a number, for keys that are numbers.
//
// hot: 0 allocs, no locks, no time.
func HashUint64(key uint64) uint64 { return nonZero(mix(key ^ 14695981039346656037)) }

// mix is the final mix of MurmurHash3.
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// nonZero keeps 0 for work without a key.
func nonZero(h uint64) uint64 {
	if h == 0 {
		return 1
	}
	return h
}
