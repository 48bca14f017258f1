package configs

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// secretKey are names whose values must not be shown.
var secretKey = regexp.MustCompile(`(?i)token([^s]|$)|secret|passw|passphrase|credential|` +
	`(api|private|access)[-_.]?key|^-*(key|auth|authorization|sig|signature|code|pin|pwd)$`)

// commonWords are values that environments and headers are full of. Hiding them would hide the same words everywhere.
var commonWords = strings.Fields(`true false null none yes no on off auto default error warn warning info debug trace
	verbose quiet silent production development staging test local localhost 127.0.0.1 0.0.0.0 stdio http https
	sse utf-8 C.UTF-8
	en_US.UTF-8 application/json text/event-stream text/plain */* no-cache keep-alive bearer basic`)

var shortNumber = regexp.MustCompile(`^[0-9.]{1,5}$`)

// hide adds values to what must not be shown; name is what they are called.
func (s *Server) hide(name string, values ...string) {
	for _, v := range values {
		common := slices.ContainsFunc(commonWords, func(w string) bool { return strings.EqualFold(w, v) })
		if v == "" || !secretKey.MatchString(name) && (common || shortNumber.MatchString(v)) {
			continue
		}
		s.Secrets = append(s.Secrets, v)
	}
}

// hideHeader hides a header's value, and what follows the scheme in "Bearer abc" by itself.
func (s *Server) hideHeader(name, value string) {
	s.hide(name, value)
	scheme, rest, ok := strings.Cut(value, " ")
	if ok && (strings.EqualFold(scheme, "bearer") || strings.EqualFold(scheme, "basic")) {
		s.hide("token", strings.TrimSpace(rest))
	}
}

// hideURL hides userinfo and the secret parameters of the query, decoded and as they stand.
func (s *Server) hideURL(u *url.URL) {
	if u.User != nil {
		password, _ := u.User.Password()
		s.hide("password", password, u.User.String())
		_, raw, _ := strings.Cut(u.User.String(), ":")
		s.hide("password", raw)
	}
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		key, raw, _ := strings.Cut(pair, "=")
		if key, err := url.QueryUnescape(key); err == nil && secretKey.MatchString(key) {
			value, _ := url.QueryUnescape(raw)
			s.hide(key, raw, value)
		}
	}
}

// hideArgs hides the values of arguments like --api-key=abc and --token abc.
func (s *Server) hideArgs() {
	for i, arg := range s.Args {
		name, value, ok := strings.Cut(arg, "=")
		if !strings.HasPrefix(name, "-") || !secretKey.MatchString(name) {
			continue
		}
		if !ok && i+1 < len(s.Args) && !strings.HasPrefix(s.Args[i+1], "-") {
			value = s.Args[i+1]
		}
		s.hide(name, value)
	}
}
