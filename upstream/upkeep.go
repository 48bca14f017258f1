package upstream

import (
	"fmt"
	"time"

	"github.com/mcpproxy/mcpproxy/configs"
)

const (
	debounceTime = 100 * time.Millisecond // from a list_changed to the listing
	debounceMost = 30 * time.Second       // for servers whose list_changed brings nothing, again and again
	relistFirst  = 5 * time.Second        // from a failed listing to the next
	relistMost   = 5 * time.Minute
	staleMin     = 30 * time.Second // the least age at which a use makes a listing anew
	pingOften    = 5 * time.Second  // keep-alive
	pingSeldom   = 15 * time.Second // other processes
	pingTimeout  = 5 * time.Second
	hungTime     = 25 * time.Second // of silence, after which a process that does not answer pings is replaced
	pingAgain    = time.Second      // after one that failed
)

// rearm sets the alarms that depend on what is, and clears those that are not due any more.
func (m *machine) rearm() {
	quiet := m.conn != nil && m.leases == 0 && !m.listing
	switch {
	case !quiet || m.keepAlive():
		m.idle.clear()
	case m.discovery && m.Config().Lifecycle == configs.Lazy:
		m.idle.set(0)
	case m.idle.c == nil:
		m.idle.set(max(0, m.Config().Limits.IdleTimeout-time.Since(m.used)))
	}
	switch {
	case !quiet || m.pinging || m.discovery || !m.keepAlive() && !m.conn.stdio: // of a remote one the next call tells
		m.ping.clear()
	case m.ping.c != nil:
	case m.silent:
		m.ping.set(pingAgain)
	case !m.conn.pinged:
		m.ping.set(0)
	case m.keepAlive():
		m.ping.set(pingOften)
	default:
		m.ping.set(pingSeldom)
	}
}

func (m *machine) sendPing() {
	m.ping.clear()
	m.pinging = true
	c := m.conn
	c.pinged = true
	m.work.Go(func() {
		err := c.ping(c.life, pingTimeout)
		m.tell(func(m *machine) { m.pinged(c, err) })
	})
}

// pinged is what came of a ping. A process that has answered pings before and is silent for long is replaced; one that
// never answers any may just not know them. A new connection to a remote server costs little.
func (m *machine) pinged(c *Conn, err error) {
	if c != m.conn {
		return
	}
	m.pinging = false
	switch {
	case err == nil:
		if m.silent {
			m.silent, m.failure = false, nil
		}
	case !c.stdio:
		c.lose(err)
	case !c.pongs.Load():
	case c.quiet() >= hungTime:
		c.lose(fmt.Errorf("%w for %v", errHung, c.quiet().Round(time.Second)))
	default:
		m.silent = true
		m.failure = m.fail(Calling, err, c)
		m.failure.Message = fmt.Sprintf("it has not answered a ping within %v", pingTimeout)
	}
}

// stir is a list_changed. A burst of them makes one listing.
func (m *machine) stir() {
	if m.listing {
		m.again = true
		return
	}
	if m.relist.c == nil || !m.stirred {
		m.relist.set(min(debounceTime<<min(m.unchanged, 10), debounceMost))
	}
	m.stirred = true
}

// startListing begins a listing, or has one follow the one that runs.
func (m *machine) startListing() {
	if m.conn == nil || m.listing {
		return // what waits in next is seen to when that one has ended
	}
	m.relist.clear()
	m.listing = true
	m.listers, m.next = m.next, nil
	c := m.conn
	m.work.Go(func() {
		seen, err := c.list()
		m.tell(func(m *machine) { m.endListing(c, seen, err) })
	})
}

// endListing is what came of a listing. One that failed leaves the connection usable and is tried again.
func (m *machine) endListing(c *Conn, seen seen, err error) {
	m.notice()
	if c != m.conn {
		return
	}
	m.listing = false
	if len(m.listers) > 0 {
		m.used = time.Now()
	}
	m.listed = true
	if err == nil {
		m.listFails, m.failure = 0, nil
		m.unstale = time.Now().Add(max(seen.fresh, staleMin))
		if m.unchanged++; !m.stirred || seen.changed {
			m.unchanged = 0
		}
		m.pool.Changed(m.id)
	} else {
		m.failure = m.fail(List, err, c)
		err = m.failure
		m.relist.set(min(relistFirst<<min(m.listFails, 10), relistMost))
		m.listFails++
		m.pool.Log.Warn("could not list", "server", m.id, "err", m.failure)
	}
	m.stirred = false
	for _, l := range m.listers {
		l.reply <- grant{err: err}
	}
	m.listers = nil
	switch {
	case len(m.next) > 0:
		m.again = false
		m.startListing()
	case m.again:
		m.again = false
		m.stir()
	}
}
