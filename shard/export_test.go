package shard

// OpenLanes returns how many lanes the shards know of.
func OpenLanes[T any](rt *Runtime[T]) int {
	n := 0
	for _, s := range rt.cur.Load().shards {
		s.in.mu.Lock()
		n += len(s.in.mu.lanes)
		s.in.mu.Unlock()
	}
	return n
}
