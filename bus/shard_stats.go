package bus

// Shards returns the number of shards; 0 is a bus that is not in sharded mode.
func (b *Bus) Shards() int { return len(b.shards) }

// ReadShard writes a reading of the stage's part on shard i to dst, without
// allocating, and reports whether there is one. Capacity is how many places the
// part has now: they are lent between shards. What a part refused is counted there,
// but for what never got to one, which is in the stage's own reading only. The
// counts of all parts add up to those of [Stage.ReadStats]; one part's account
// need not balance, since a place or an end can be another's.
func (s *Stage) ReadShard(i int, dst *StageStats) bool {
	if i < 0 || i >= len(s.parts) {
		*dst = StageStats{}
		return false
	}
	p := s.parts[i]
	p.ReadStats(dst)
	dst.Capacity = max(0, dst.Capacity+int(p.lent.Load()))
	return true
}
