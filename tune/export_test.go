package tune

// Routes is how many operations the table has.
func (a *API) Routes() int { return len(a.table()) }
