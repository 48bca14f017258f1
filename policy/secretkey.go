package policy

import (
	"slices"
	"strings"
)

// Words of keys, in the forms that split makes of them.
var (
	// secretWords make a key secret wherever they stand in it.
	secretWords = strings.Fields(`password passwords passwd passphrase passcode pwd secret secrets credential credentials
		authorization cookie cookies apikey apikeys privatekey accesskey secretkey clientsecret jwt assertion verifier otp cvv`)
	// secretEnds do so as the end of the key's last word: PGPASSWORD, authtoken.
	secretEnds = strings.Fields(`token password passwd secret apikey passphrase`)
	// keyWords make a secret of "key" behind them.
	keyWords = strings.Fields(`api private access secret auth encryption signing master subscription ssh account shared
		service session admin license storage`)
	// urlWords are secret as the last word of a query parameter only.
	urlWords = strings.Fields(`key sig signature code auth credential`)
	// aboutWords end a key that tells something about a secret, not the secret.
	aboutWords = strings.Fields(`name names id ids ref type kind count limit url uri endpoint path file expires expiry expiration
		at in ttl length size policy method methods required enabled field hint scope scopes header env status format version
		location prefix algorithm supported`)
	// harmlessTokens are words before "token" that make it a position or an id.
	harmlessTokens = strings.Fields(`page next continuation pagination progress previous prev stop unexpected`)

	// stems are parts of which every secret key has one.
	stemsOfSecrets = strings.Fields(`pass secret token key cred auth cookie pwd jwt assertion verifier otp cvv sig code`)
)

// secretKey tells whether what stands under a key is a secret: password, apiKey, DB_PASSWORD, x-api-key. token_count and
// maxTokens are none. In a URL's query shorter names are secret too.
func secretKey(key string, inURL bool) bool {
	low := strings.ToLower(key)
	if !slices.ContainsFunc(stemsOfSecrets, func(stem string) bool { return strings.Contains(low, stem) }) {
		return false
	}
	words := split(key)
	if len(words) == 0 {
		return false
	}
	last, before := words[len(words)-1], ""
	if len(words) > 1 {
		before = words[len(words)-2]
	}
	switch {
	case slices.Contains(aboutWords, last):
		return false
	case last == "token" && slices.Contains(harmlessTokens, before):
		return false
	case last == "value" && before == "token", last == "key" && slices.Contains(keyWords, before):
		return true
	case inURL && slices.Contains(urlWords, last):
		return true
	case slices.ContainsFunc(secretEnds, func(end string) bool { return strings.HasSuffix(last, end) }):
		return true
	}
	return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(secretWords, w) })
}
