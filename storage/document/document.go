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
func Encode(v any) ([]byte, error) {
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
	if len(document) > MaxSize {
		return nil, fmt.Errorf("%d bytes are more than the %d that are read back: shorten its texts, such as labels",
			len(document), MaxSize)
	}
	return document, nil
}

// Decode fills v, a pointer to a struct, from data of that format. Unknown fields are refused: a newer version that adds
// one raises the format's number, and what that field says might matter. Errors match storage.ErrDamaged.
func Decode(data []byte, format int, v any) error {
	covered, digest, err := split(data)
	if err != nil {
		return err
	}
	if sum := sha256.Sum256(covered); hex.EncodeToString(sum[:]) != digest {
		return fmt.Errorf("%w: its content does not match its own sha256", storage.ErrDamaged)
	}
	body := append(bytes.TrimSuffix(covered[:len(covered):len(covered)], []byte(",\n")), "\n}"...)
	var known struct{ Format int }
	if err := json.Unmarshal(body, &known); err == nil && known.Format != format {
		return fmt.Errorf("%w: its format %d is unknown to this version of dr, which knows %d", storage.ErrDamaged, known.Format, format)
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("%w: %w", storage.ErrDamaged, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return fmt.Errorf("%w: there is more than one document in it", storage.ErrDamaged)
	}
	return nil
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
