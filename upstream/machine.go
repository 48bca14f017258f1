package upstream

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/mcpproxy/mcpproxy/configs"
)

const (
	backoffFirst = 500 * time.Millisecond
	backoffMost  = 60 * time.Second
	healthyTime  = 30 * time.Second // a connection that lived so long ends a row of failures
	patienceTime = time.Second      // a retry that is due so soon is waited for

	successionTime = 6 * time.Second // for a process to end before the next one of the same server starts
)

// want is what somebody wants of a server: a lease of its connection, or a listing that begins after it.
type want struct {
	list      bool
	discovery bool       // the connection is wanted for nothing but the listing
	reply     chan grant // buffered; gets one
}

// grant is the answer to a want.
type grant struct {
	conn *Conn // leased; nil for a listing
	err  error
}

// attempt is one try to connect; its identity tells news of it from news of another.
type attempt struct{ cancel context.CancelFunc }

// alarm is a timer whose channel is nil unless it is set.
type alarm struct {
	timer *time.Timer
	c     <-chan time.Time
}

func (a *alarm) set(d time.Duration) {
	a.clear()
	a.timer = time.NewTimer(d)
	a.c = a.timer.C
}

func (a *alarm) clear() {
	if a.timer != nil {
		a.timer.Stop()
	}
	*a = alarm{}
}

// machine is what a server's goroutine owns: nobody else touches it. Each input is one method.
type machine struct {
	*Server
	hint hint // what attempts have taught

	attempt *attempt // the present one
	conn    *Conn    // the live one; attempt is nil then
	rest    Status   // while there is neither
	waiting []*want  // for the attempt, or for its time
	dials   int      // attempts whose goroutines run, given up ones too
	open    int      // connections that are not closed, retired ones too
	ending  chan struct{}
	leases  int // of all connections
	used    time.Time

	listing   bool    // under way
	again     bool    // something has changed since it began
	listers   []*want // wait for the listing under way
	next      []*want // wait for the one after it
	listed    bool    // once on this connection
	unstale   time.Time
	listFails int
	unchanged int // listings in a row for list_changed that found nothing new
	stirred   bool

	discovery bool // nobody but a discovery has wanted the connection
	pinging   bool
	silent    bool // does not answer pings
	paused    bool // disconnected by hand
	leaving   bool // out of the configuration
	failure   *Failure
	fails     int // in a row
	retryAt   time.Time
	connected time.Time

	idle, retry, ping, relist alarm
	shut                      <-chan struct{} // nil once the end has begun
}

// run is the server's goroutine. It ends, after leave or stop, when all connections are closed and all that it has
// started has ended.
func (s *Server) run() {
	m := &machine{Server: s, rest: Cold, ending: make(chan struct{}), shut: s.life.Done()}
	close(m.ending)
	defer close(s.done)
	defer s.work.Wait()
	defer close(s.stopped)
	defer s.stop()
	if m.keepAlive() || s.Config().Lifecycle == configs.Eager {
		m.connect()
	}
	for !(m.leaving && m.dials == 0 && m.open == 0) {
		m.rearm()
		m.publish()
		select {
		case in := <-s.inputs:
			in(m)
		case <-m.dead():
			m.lost()
		case <-m.broken():
			m.lost()
		case <-m.changed():
			m.stir()
		case <-m.idle.c:
			m.retire(m.conn, false)
			m.rest = Cold
		case <-m.retry.c:
			m.retried()
		case <-m.ping.c:
			m.sendPing()
		case <-m.relist.c:
			m.relist.clear()
			m.startListing()
		case <-m.shut:
			m.shutdown()
		}
	}
	m.publish()
}

func (m *machine) dead() <-chan struct{} {
	if m.conn == nil {
		return nil
	}
	return m.conn.wire.done()
}

func (m *machine) broken() <-chan struct{} {
	if m.conn == nil {
		return nil
	}
	return m.conn.broken
}

func (m *machine) changed() <-chan struct{} {
	if m.conn == nil {
		return nil
	}
	return m.conn.changed
}

func (m *machine) keepAlive() bool { return m.Config().Lifecycle == configs.KeepAlive }

// ask answers at once what can be answered, and else makes sure that an attempt is under way or due.
func (m *machine) ask(a *want) {
	m.notice()
	if m.leaving {
		a.reply <- grant{err: m.gone()}
		return
	}
	m.discovery = a.discovery && (m.discovery || m.conn == nil && m.attempt == nil)
	m.paused = false
	wait := time.Until(m.retryAt)
	switch {
	case m.conn != nil:
		m.grant(a)
	case m.attempt != nil:
		m.waiting = append(m.waiting, a)
	case wait > patienceTime:
		a.reply <- grant{err: m.failure}
	case wait > 0:
		m.waiting = append(m.waiting, a)
		m.retry.set(wait)
	default:
		m.waiting = append(m.waiting, a)
		m.connect()
	}
}

// notice is for the case that an input has overtaken the news of the connection's end.
func (m *machine) notice() {
	select {
	case <-m.dead():
		m.lost()
	case <-m.broken():
		m.lost()
	default:
	}
}

// grant serves a want from the live connection.
func (m *machine) grant(a *want) {
	if a.list {
		m.next = append(m.next, a)
		m.startListing()
		return
	}
	m.leases++
	m.conn.leases++
	a.reply <- grant{conn: m.conn}
	if m.listed && time.Now().After(m.unstale) && m.relist.c == nil {
		m.relist.set(debounceTime)
	}
}

// withdraw takes a want back whose caller has gone; it may have been granted meanwhile.
func (m *machine) withdraw(a *want) {
	for _, queue := range []*[]*want{&m.waiting, &m.listers, &m.next} {
		*queue = slices.DeleteFunc(*queue, func(b *want) bool { return a == b })
	}
	select {
	case g := <-a.reply:
		if g.conn != nil {
			m.free(g.conn)
		}
	default:
	}
}

// free takes a lease back.
func (m *machine) free(c *Conn) {
	m.leases--
	m.used = time.Now()
	if c.leases--; c.retired && c.leases == 0 {
		m.close(c)
	}
}

// connect begins an attempt.
func (m *machine) connect() {
	ctx, cancel := context.WithCancel(m.life)
	a := &attempt{cancel}
	m.attempt = a
	m.retry.clear()
	m.dials++
	hint, ending := m.hint, m.ending
	m.work.Go(func() {
		defer cancel()
		c, err := m.reach(ctx, &hint, ending)
		m.tell(func(m *machine) { m.dialed(a, c, hint, err) })
	})
}

// dialed is the end of an attempt. A connection that comes with an error is only to be closed.
func (m *machine) dialed(a *attempt, c *Conn, hint hint, err error) {
	m.dials--
	if c != nil {
		m.open++
		c.opened = time.Now()
	}
	if a != m.attempt || err != nil {
		if c != nil {
			c.retired = true
			m.close(c)
		}
		if a == m.attempt {
			m.attempt, m.hint = nil, hint
			m.refused(err, c)
		}
		return
	}
	m.attempt, m.hint, m.conn = nil, hint, c
	m.connected, m.used, m.retryAt = c.opened, c.opened, time.Time{}
	m.failure, m.listed, m.unchanged, m.listFails = nil, false, 0, 0
	m.pool.Log.Info("connected", "server", m.id, "transport", string(m.Config().Transport), "version", c.version)
	select {
	case <-c.changed: // the listing that comes anyway is later
	default:
	}
	waiting := m.waiting
	m.waiting = nil
	for _, w := range waiting {
		if w.list {
			m.next = append(m.next, w)
		} else {
			m.grant(w)
		}
	}
	m.startListing()
}

// refused is an attempt that has failed: whoever waits for it fails with it.
func (m *machine) refused(err error, c *Conn) {
	m.fails++
	wait := backoff(m.fails, rand.Float64())
	m.retryAt = time.Now().Add(wait)
	f := m.fail(stageOf(err), err, c)
	f.Retry = m.retryAt
	m.failure, m.discovery, m.rest = f, false, Errored
	switch {
	case f.NeedsAuth:
		m.rest = NeedsAuth
	case m.keepAlive() && !m.paused:
		m.retry.set(wait)
	}
	m.pool.Log.Warn("could not connect", "server", m.id, "transport", string(m.Config().Transport), "err", f, "retry", wait)
	m.turnAway(f)
}

// turnAway fails everybody who waits for a connection.
func (m *machine) turnAway(f *Failure) {
	for _, w := range m.waiting {
		w.reply <- grant{err: f}
	}
	m.waiting = nil
}

// retried is the time of the next attempt, when somebody wants it.
func (m *machine) retried() {
	m.retry.clear()
	if m.conn == nil && m.attempt == nil && (len(m.waiting) > 0 || m.keepAlive() && !m.paused) {
		m.connect()
	}
}

// lost is the end of the connection that nobody has asked for. A session that a server has forgotten and a process that
// has ended well, after served work, are part of its life; other ends are failures, and the first of a row is free.
func (m *machine) lost() {
	c := m.conn
	err := c.reason()
	exit, refused := (*exitError)(nil), (*httpError)(nil)
	ended := errors.As(err, &exit) && exit.code == 0
	forgotten := errors.As(err, &refused) && refused.lost
	m.retire(c, c.stdio || c.gone())
	m.rest, m.failure, m.discovery = Cold, nil, false
	wait := time.Duration(0)
	if !c.served.Load() || !ended && !forgotten {
		m.fails++
		m.failure = m.fail(Calling, err, c)
		m.failure.Message = "the connection was lost: " + m.failure.Message
		if wait = backoff(m.fails-1, rand.Float64()); wait > 0 {
			m.rest = Errored
			m.failure.Retry = time.Now().Add(wait)
		}
		if m.failure.NeedsAuth {
			m.rest = NeedsAuth
		}
		m.pool.Log.Warn("lost the connection", "server", m.id, "transport", string(m.Config().Transport), "err", m.failure, "retry", wait)
	}
	m.retryAt = time.Now().Add(wait)
	switch {
	case m.leaving || m.paused || !m.keepAlive() || m.rest == NeedsAuth:
	case wait > 0:
		m.retry.set(wait)
	default:
		m.connect()
	}
}

// backoff is the wait after so many failures in a row; r in [0, 1) spreads it.
func backoff(fails int, r float64) time.Duration {
	if fails <= 0 {
		return 0
	}
	d := min(backoffFirst<<min(fails-1, 10), backoffMost)
	return min(d+time.Duration(r*float64(d/4)), backoffMost)
}

// retire takes the connection out of use. It is closed at once when cut says so, else when its leases are back.
func (m *machine) retire(c *Conn, cut bool) {
	m.conn = nil
	if time.Since(c.opened) >= healthyTime {
		m.fails = 0
	}
	for _, l := range append(m.listers, m.next...) {
		l.reply <- grant{err: &LostError{Server: m.id, Sent: true, Err: c.reason()}}
	}
	m.listers, m.next, m.listing, m.again = nil, nil, false, false
	m.silent, m.pinging, m.stirred = false, false, false
	m.relist.clear()
	c.stopListing()
	c.retired = true
	if cut || c.leases == 0 {
		m.close(c)
	}
}

// close ends a retired connection in the background.
func (m *machine) close(c *Conn) {
	if c.closing {
		return
	}
	c.closing = true
	ended := make(chan struct{})
	if c.stdio {
		m.ending = ended
	}
	ctx := m.polite
	m.work.Go(func() {
		if errors.Is(c.reason(), errHung) { // it would not hear a polite word
			hurried, cancel := context.WithCancel(ctx)
			cancel()
			ctx = hurried
		}
		if err := c.close(ctx); err != nil {
			m.pool.Log.Warn("could not end the connection", "server", m.id, "err", err)
		}
		close(ended)
		m.tell(func(m *machine) { m.closed(c) })
	})
}

func (m *machine) closed(c *Conn) {
	m.open--
	for _, a := range c.farewells {
		a.reply <- grant{}
	}
	if m.rest == Disconnecting {
		m.rest = Disconnected
	}
}

// disconnect ends what there is, forgets past failures, and stays so until the next use.
func (m *machine) disconnect(a *want) {
	m.notice()
	m.paused, m.discovery = true, false
	m.fails, m.retryAt, m.failure = 0, time.Time{}, nil
	m.retry.clear()
	if m.attempt != nil {
		m.attempt.cancel()
		m.attempt = nil
	}
	m.turnAway(&Failure{
		Server: m.id, Stage: Handshake, At: time.Now(),
		Message: "it was disconnected before the connection was made", Hint: "call again",
	})
	m.rest = Disconnected
	if m.conn == nil {
		a.reply <- grant{}
		return
	}
	m.rest = Disconnecting
	m.conn.farewells = append(m.conn.farewells, a)
	m.retire(m.conn, false)
}

// swapped is a configuration of the same Hash with other limits.
func (m *machine) swapped() { m.idle.clear() }

// leave ends the server when its leases are back.
func (m *machine) leave() {
	m.leaving = true
	if m.attempt != nil {
		m.attempt.cancel()
		m.attempt = nil
	}
	m.retry.clear()
	m.turnAway(m.gone())
	if m.conn != nil {
		m.retire(m.conn, false)
	}
	m.rest = Disconnected
}

// shutdown ends the server now.
func (m *machine) shutdown() {
	m.shut = nil
	c := m.conn
	m.leave()
	if c != nil {
		m.close(c)
	}
}

// status is the present condition in one word.
func (m *machine) status() Status {
	switch {
	case m.attempt != nil && m.discovery, m.conn != nil && !m.listed && m.discovery:
		return Discovering
	case m.attempt != nil:
		return Connecting
	case m.conn == nil:
		return m.rest
	case m.silent:
		return Errored
	case !m.listed:
		return Connected
	}
	return Ready
}

// publish makes what is known visible, and says so when something has changed.
func (m *machine) publish() {
	old := m.state.Load()
	st := &State{
		Status: m.status(), Failure: m.failure, Since: old.Since, LastConnected: m.connected, Leases: m.leases,
	}
	if m.conn != nil {
		st.ProtocolVersion = m.conn.version
	} else if m.attempt == nil {
		st.NextTry = m.retryAt
	}
	if st.Status != old.Status {
		st.Since = time.Now()
	}
	m.state.Store(st)
	if st.Status != old.Status || st.Failure != old.Failure || !st.NextTry.Equal(old.NextTry) {
		m.pool.Changed(m.id)
	}
}
