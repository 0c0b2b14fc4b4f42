package bus

// With Full Credit each part of a stage in sharded mode has a desk, with its part
// of the window; credits are places, and so they are lent like these. A producer
// acquires on one shard, and what it then publishes elsewhere takes a credit along.

// mostOfParts is how many credits one producer can have of all parts together.
func (s *Stage) mostOfParts() int {
	sum := 0
	for _, p := range s.whole.parts {
		sum += int(p.most.Load())
	}
	return sum
}

// gatherFor gets, for a part, the places together that n credits need. No lock is
// held.
func (s *Stage) gatherFor(a *account, n int) {
	if s.whole == nil || n < 1 {
		return
	}
	if a.lane != nil || a.led == nil {
		s.whole.holdsCredit.Store(true)
	}
	s.mu.Lock()
	need := n + int(s.mu.shut) - int(s.free.Load())
	s.mu.Unlock()
	if need <= 0 || s.borrow(need) >= need {
		return
	}
	s.callBack()
	if need -= int(s.free.Load()); need > 0 {
		s.borrow(need)
	}
}

// setCredit sets what a new producer says of itself.
func (p *Producer) setCredit(weight, class int) {
	p.weight, p.class = weight, class
	if p.acct != nil {
		p.acct.weight, p.acct.class = weight, class // nobody else knows it yet
	}
}

// moveCredit takes one credit that the producer has acquired on its home shard
// along to another one.
func (p *Producer) moveCredit(to *Producer) {
	from := p.atHome()
	if from == to || to.Credits() > 0 || !from.acct.giveUp() {
		return
	}
	to.acct.takeOver()
}

// giveUp takes one credit out of a's hand, and its place out of the part.
func (a *account) giveUp() bool {
	s := a.stage
	s.mu.Lock()
	defer s.unlockAndStart()
	if s.mu.desk == nil || a.led == nil {
		return false
	}
	a.foldLocked()
	if a.held == 0 {
		return false
	}
	a.held--
	s.mu.desk.ledger.Return(a.led, 1)
	s.lent.Add(-1)
	return true
}

// takeOver puts a credit, whose place has left another part, into a's hand.
func (a *account) takeOver() {
	s := a.stage
	s.mu.Lock()
	defer s.unlockAndStart()
	s.lent.Add(1)
	d := s.mu.desk
	if d == nil || a.closed {
		s.releaseAsideLocked(1)
		return
	}
	if a.led == nil {
		d.open(a)
	}
	a.foldLocked()
	d.tellLocked()
	d.ledger.SetWindow(max(d.windowNow(), d.ledger.Unspent()+1))
	d.ledger.SetUsed(min(d.ledger.Used(), d.ledger.Window()-d.ledger.Unspent()-1))
	if d.ledger.Grant(a.led, 1, d.now()) != 1 {
		s.releaseAsideLocked(1)
		return
	}
	a.held++
}

func (p *Producer) returnOfParts(n int) (returned int) {
	for i := range p.parts {
		if part := p.parts[i].Load(); part != nil && returned < n {
			returned += part.Return(n - returned)
		}
	}
	return returned
}

func (p *Producer) creditsOfParts() (n int) {
	for i := range p.parts {
		if part := p.parts[i].Load(); part != nil {
			n += part.Credits()
		}
	}
	return n
}

// blockedOfParts is what the home shard says, if none of the others lets the
// producer publish.
func (p *Producer) blockedOfParts() Blocked {
	b := p.atHome().Blocked()
	for i := range p.parts {
		part := p.parts[i].Load()
		if part == nil || part == p.atHome() {
			continue
		}
		o := part.Blocked()
		b.Total += o.Total
		if o.Waits && !b.Waits {
			b.Waits, b.Since = true, o.Since
		}
	}
	return b
}

// readCreditOfParts adds up the readings of the parts.
func (s *Stage) readCreditOfParts(dst *CreditState) {
	asked := s.Config().Credit.Window
	for i, p := range s.parts {
		var one CreditState
		p.ReadCredit(&one)
		if i == 0 {
			one.Producers = append(dst.Producers, one.Producers...)
			*dst = one
			continue
		}
		dst.add(&one)
	}
	dst.Asked, dst.Note = asked, s.clampNote()
}

func (c *CreditState) add(o *CreditState) {
	c.Window += o.Window
	c.InHand += o.InHand
	c.Used += o.Used
	c.Free += o.Free
	c.Reserve += o.Reserve
	c.Waiting += o.Waiting
	c.Granted += o.Granted
	c.Spent += o.Spent
	c.Returned += o.Returned
	c.Expired += o.Expired
	c.Blocked += o.Blocked
	c.Target = max(c.Target, o.Target)
	c.Drain += o.Drain
	c.Producers = append(c.Producers, o.Producers...)
}

// clampNote says why the window is smaller than what was asked for.
func (s *Stage) clampNote() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clampNoteLocked()
}

// creditOfPart is what the i-th of the homes is set to.
func creditOfPart(c CreditConfig, i, homes int) CreditConfig {
	if c.Window > 0 {
		if c.Window = shareOf(c.Window, i, homes); c.Window == 0 || i >= homes {
			c.Window = CreditNone // it borrows
		}
	}
	if c.HopReserve > 0 {
		c.HopReserve = max(1, shareOf(c.HopReserve, i, homes))
	}
	return c
}
