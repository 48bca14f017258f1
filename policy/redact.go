package policy

import "encoding/json"

// Redactor hides secrets: values known from the configuration, well-known token shapes, URL userinfo and secret query
// parameters, and in JSON the values of secret-looking keys. The nil Redactor hides only what needs no configuration.
type Redactor struct{ redactor }

type redactor struct{} // stub

// NewRedactor hides these values besides what it knows by shape. Values shorter than 4 characters are left alone.
func NewRedactor(secrets []string) *Redactor { panic("stub") }

// Text is s with secrets replaced by "[redacted]".
func (r *Redactor) Text(s string) string { panic("stub") }

// JSON is raw with secrets in its strings, and the whole value of secret-looking keys, replaced. What is not JSON is
// treated as text and quoted.
func (r *Redactor) JSON(raw json.RawMessage) json.RawMessage { panic("stub") }
