package upstream

import (
	"bytes"
	"html"
	"regexp"
	"strings"
	"unicode"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// messageMax is how much of an error page is kept, in characters.
const messageMax = 300

var (
	hidden = regexp.MustCompile(`(?is)<(?:script|style|svg|template)\b.*?(?:</(?:script|style|svg|template)\s*>|\z)|` +
		`<!--.*?(?:-->|\z)`)
	title  = regexp.MustCompile(`(?is)<title[^>]*>(.*?)</title>`)
	markup = regexp.MustCompile(`(?s)<[^>]*(>|\z)`)
)

// readable makes one line of at most messageMax characters out of what a server says about an error: the sentence in
// JSON, the text of HTML, or the text that it is.
func readable(body []byte) string {
	body = bytes.TrimSpace(body)
	if len(body) == 0 {
		return ""
	}
	switch body[0] {
	case '{', '"':
		if s := sentence(body); s != "" {
			return cut(fold(s))
		}
	case '<':
		return cut(pageText(string(body)))
	}
	return cut(fold(string(body)))
}

// sentence is what the usual shapes of errors in JSON say, "" for other shapes.
func sentence(body []byte) string {
	if !jsonrpc.Valid(body) {
		return ""
	}
	if body[0] == '"' {
		return jsonrpc.Unquote(body)
	}
	var parts []string
	said := map[string]bool{"": true}
	for _, path := range [][]string{{"error"}, {"error", "message"}, {"message"}, {"error_description"}, {"detail"}} {
		if s := jsonrpc.Unquote(jsonrpc.Member(body, path...)); !said[s] {
			said[s] = true
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, ": ")
}

// pageText is what a reader sees of an HTML page, the title first.
func pageText(page string) string {
	page = hidden.ReplaceAllString(page, " ")
	text := fold(html.UnescapeString(markup.ReplaceAllString(page, " ")))
	if t := title.FindStringSubmatch(page); t != nil { // the heading often says it again
		name := fold(html.UnescapeString(t[1]))
		if rest, ok := strings.CutPrefix(text, name+" "); ok && strings.HasPrefix(rest, name) {
			return rest
		}
	}
	return text
}

// fold makes one line of a text, without characters that cannot be seen.
func fold(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsPrint(r):
			return r
		}
		return -1
	}, strings.ToValidUTF8(s, ""))
	return strings.Join(strings.Fields(s), " ")
}

func cut(s string) string {
	if r := []rune(s); len(r) > messageMax {
		return string(r[:messageMax-1]) + "…"
	}
	return s
}

var (
	lostHint = regexp.MustCompile(`(?i)` +
		`\bsession.*\b(not found|unknown|invalid|expired|not exist|doesn't exist|no longer|not valid|terminated|` +
		`not initialized|required|missing)\b|` +
		`\b(unknown|invalid|expired|no|no valid|no active|missing)\b.*\bsession|` +
		`\bserver not initialized\b`)
	lostSentence = regexp.MustCompile(`(?i)^` +
		`(?:(?:error|bad request|not found|mcp error -?\d+)[:,]? )*` +
		`(?:` +
		`(?:(?:the |your |this |mcp[ -])*session(?:[ -]?id)?(?: with id)?(?::? ['"\w:.-]+)? ` +
		`(?:was |is |has |does |could |be |been )*` +
		`(?:not found|not exist|unknown|invalid|expired|not valid|no longer valid|terminated|not initialized)` +
		`(?: or (?:expired|invalid|not found|has expired))?` +
		`|(?:an? )?(?:no valid|no active|unknown|invalid or expired|invalid|expired|missing or invalid) ` +
		`(?:mcp[ -])?session(?:[ -]?id)?(?:: ?['"\w.-]+| provided| found)?` +
		`|no session found|server not initialized` +
		`)\b)['".!]*(?:[.:;,] .*)?$`)
)

// sessionLost tells whether an answer to a request with a session id means that the server does not know the session.
// Servers say so with 404, as they must, but also with 400, 410, 503 and with errors in a 200. own means that the
// answer is a JSON-RPC error with the request's id: it may be about a session of another kind, so only a sentence that
// is about nothing else counts.
func sessionLost(status int, own bool, text string) bool {
	switch {
	case status == 401 || status == 403 || status == 429:
		return false
	case status == 404 && !own:
		return true
	case (status == 400 || status == 410 || status == 503) && !own:
		return lostHint.MatchString(text)
	}
	return lostSentence.MatchString(text)
}
