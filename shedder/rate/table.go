package rate

// entry is a key or sender that is remembered. Entries form a ring around
// table.root, the one that was seen last first.
type entry struct {
	bucket

	name       string
	tuned      uint32 // Policy.mu.tuned when the bucket was set
	prev, next *entry
}

// table remembers entries by name and by when they were seen last.
type table struct {
	byName map[string]*entry
	root   *entry
}

func (t *table) clear() {
	t.byName = make(map[string]*entry)
	t.root = &entry{}
	t.root.prev, t.root.next = t.root, t.root
}

func (t *table) len() int { return len(t.byName) }

// find returns the entry of a name as the one that was seen last, or nil.
func (t *table) find(name string) *entry {
	e := t.byName[name]
	if e != nil && t.root.next != e {
		e.unlink()
		t.link(e)
	}
	return e
}

func (t *table) add(e *entry) {
	t.byName[e.name] = e
	t.link(e)
}

// oldest is the entry that was seen last the longest ago; the table is not empty.
func (t *table) oldest() *entry { return t.root.prev }

// evict forgets the oldest entry.
func (t *table) evict() {
	e := t.oldest()
	e.unlink()
	delete(t.byName, e.name)
}

func (t *table) link(e *entry) {
	e.prev, e.next = t.root, t.root.next
	e.prev.next, e.next.prev = e, e
}

func (e *entry) unlink() {
	e.prev.next, e.next.prev = e.next, e.prev
}
