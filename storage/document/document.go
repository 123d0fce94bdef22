// Package document is how small things are stored: as JSON that covers its own bytes with a digest, so that a byte that
// changes anywhere is found, a person can read it, and jq can too.
package document

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/storage"
)

// A document is indented JSON whose last two fields are a digest and a signature,
//
//	{
//	  ...,
//	  "sha256": "<64 hex digits, over every byte before this line>",
//	  "signature": ""
//	}
//
// The signature is empty: this version signs nothing.
const (
	digestField    = "  \"sha256\": \""
	documentEnding = "\",\n  \"signature\": \"\"\n}\n"
	digestLength   = 2 * sha256.Size
)

// MaxSize is how many bytes a document has at most; a manifest with a hundred members has under 64 KiB.
const MaxSize = 1 << 20

// Encode is the stored form of v, a struct with at least one field.
func Encode(v any) ([]byte, error) { return EncodeUpTo(MaxSize, v) }

// EncodeUpTo is Encode for a document that is read back with another limit than MaxSize.
func EncodeUpTo(limit int, v any) ([]byte, error) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	covered, ok := bytes.CutSuffix(body.Bytes(), []byte("\n}\n"))
	if !ok {
		return nil, fmt.Errorf("%T has no fields", v)
	}
	covered = append(covered, ",\n"...)
	sum := sha256.Sum256(covered)
	document := append(covered, digestField+hex.EncodeToString(sum[:])+documentEnding...)
	if len(document) > limit {
		return nil, fmt.Errorf("%d bytes are more than the %d that are read back: shorten its texts, such as labels",
			len(document), limit)
	}
	return document, nil
}

// Decode fills v, a pointer to a struct with a field Format, from data of that format. Unknown fields are refused: a
// newer version that adds one raises the format's number, and what that field says might matter. Errors match
// storage.ErrDamaged.
func Decode(data []byte, format int, v any) error {
	covered, digest, err := split(data)
	if err != nil {
		return err
	}
	if sum := sha256.Sum256(covered); hex.EncodeToString(sum[:]) != digest {
		return fmt.Errorf("%w: its content does not match its own sha256", storage.ErrDamaged)
	}
	body := slices.Concat(bytes.TrimSuffix(covered, []byte(",\n")), []byte("\n}")) // data stays as it is
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	err = dec.Decode(v)
	if known, ok := formatIn(body, v, err); ok && known != format {
		return fmt.Errorf("%w: its format %d is unknown to this version of dr, which knows %d", storage.ErrDamaged, known, format)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", storage.ErrDamaged, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return fmt.Errorf("%w: there is more than one document in it", storage.ErrDamaged)
	}
	return nil
}

// formatIn is the format that body says it has. A body that was decoded well is not parsed a second time for that: with
// thousands of documents it shows.
func formatIn(body []byte, v any, err error) (format int, ok bool) {
	if err == nil {
		return int(reflect.ValueOf(v).Elem().FieldByName("Format").Int()), true
	}
	var known struct{ Format int }
	err = json.Unmarshal(body, &known)
	return known.Format, err == nil
}

// split checks the frame of a document and returns the bytes that its digest covers.
func split(data []byte) (covered []byte, digest string, err error) {
	head, ok := bytes.CutSuffix(data, []byte(documentEnding))
	at := len(head) - digestLength - len(digestField)
	if !ok || at < 0 || string(head[at:at+len(digestField)]) != digestField {
		return nil, "", fmt.Errorf("%w: it does not end as a document of dr does (cut off, or of another version)", storage.ErrDamaged)
	}
	digest = string(head[at+len(digestField):])
	if strings.Trim(digest, "0123456789abcdef") != "" {
		return nil, "", fmt.Errorf("%w: its sha256 is no digest", storage.ErrDamaged)
	}
	return head[:at], digest, nil
}
