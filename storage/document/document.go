// Package document encodes small stored objects as JSON that contains a digest of its own bytes. So every changed byte
// is detected, and a person and jq can read the document. It may be signed.
package document

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/sign"
)

// A document is indented JSON whose last two fields are a digest and a signature:
//
//	{
//	  ...,
//	  "sha256": "<64 hex digits, over every byte before this line>",
//	  "signature": "<the text of a .minisig file over the same bytes, or nothing>"
//	}
const (
	digestField    = "  \"sha256\": \""
	signatureField = "\",\n  \"signature\": "
	documentEnding = "\n}\n"
	digestLength   = 2 * sha256.Size
)

// MaxSize is the largest size of a document in bytes. A manifest with a hundred members has under 64 KiB.
const MaxSize = 1 << 20

// Encode returns the stored form of v, a struct with at least one field.
func Encode(v any) ([]byte, error) { return EncodeUpTo(MaxSize, v) }

// EncodeUpTo is Encode for a document whose reader has another limit than MaxSize.
func EncodeUpTo(limit int, v any) ([]byte, error) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	if err != nil {
		return nil, err
	}
	covered, ok := bytes.CutSuffix(body.Bytes(), []byte("\n}\n"))
	if !ok {
		return nil, fmt.Errorf("%T has no fields", v)
	}
	covered = append(covered, ",\n"...)
	size := len(covered) + maxFrame
	if size > limit {
		return nil, fmt.Errorf("%d bytes are more than the %d that are read back: shorten its texts, such as labels", size, limit)
	}
	return appendFrame(covered, ""), nil
}

// maxFrame is the largest number of bytes after the covered ones. It has room for a signature that is added later.
const maxFrame = len(digestField) + digestLength + len(signatureField) + 2*sign.MaxSignature + len(documentEnding)

// appendFrame returns covered with its digest and the signature appended.
func appendFrame(covered []byte, signature string) []byte {
	sum := sha256.Sum256(covered)
	return slices.Concat(covered, []byte(digestField+hex.EncodeToString(sum[:])+signatureField), quoteSignature(signature), []byte(documentEnding))
}

// quoteSignature returns a signature as JSON. split accepts only this encoding, so that a signature cannot be rewritten
// with other bytes.
func quoteSignature(signature string) []byte {
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(signature) // a string always encodes
	return bytes.TrimSuffix(line.Bytes(), []byte("\n"))
}

// Kind is one kind of stored document: a struct T with a field Format.
type Kind[T any] struct {
	Format int           // the number of the format that this version writes and reads
	Check  func(T) error // returns an error if a document must not be stored or used; nil accepts all
}

// MaxKind is the size in bytes of the largest document of a Kind. A manifest with a hundred members has under 64 KiB.
const MaxKind = 128 << 10

// Encode returns the stored form of v with the Format of k.
func (k Kind[T]) Encode(v T) ([]byte, error) {
	reflect.ValueOf(&v).Elem().FieldByName("Format").SetInt(int64(k.Format))
	err := k.check(v)
	if err != nil {
		return nil, err
	}
	return EncodeUpTo(MaxKind, v)
}

// Decode returns the document that Encode stored as data. Its errors match storage.ErrDamaged.
func (k Kind[T]) Decode(data []byte) (T, error) {
	var v, zero T
	err := Decode(data, k.Format, &v)
	if err != nil {
		return zero, err
	}
	err = k.check(v)
	if err != nil {
		return zero, fmt.Errorf("%w: %w", storage.ErrDamaged, err)
	}
	return v, nil
}

func (k Kind[T]) check(v T) error {
	if k.Check == nil {
		return nil
	}
	return k.Check(v)
}

// Sign signs a document that Encode has returned. The zero Key returns data unchanged.
func Sign(data []byte, key sign.Key) ([]byte, error) {
	if key.None() {
		return data, nil
	}
	f, err := split(data)
	if err != nil {
		return nil, err
	}
	return appendFrame(f.covered, key.Sign(f.covered)), nil
}

// WithSignature returns a document from Encode with a signature over it that was made earlier.
func WithSignature(data []byte, signature string) ([]byte, error) {
	f, err := split(data)
	if err != nil {
		return nil, err
	}
	return appendFrame(f.covered, signature), nil
}

// Signature returns the signature in a document, the text of a .minisig file, or "".
func Signature(data []byte) string {
	f, err := split(data)
	if err != nil {
		return ""
	}
	return f.signature
}

// Check returns an error that matches sign.ErrUntrusted and storage.ErrDamaged unless a trusted key has signed data.
// This includes data that is not a document. The zero Trust checks nothing.
func Check(data []byte, t sign.Trust) error {
	if t.None() {
		return nil
	}
	f, err := split(data)
	if err == nil {
		err = t.Check(f.covered, f.signature)
	}
	switch {
	case errors.Is(err, sign.ErrUntrusted):
		return fmt.Errorf("%w: %w", storage.ErrDamaged, err)
	case err != nil:
		return fmt.Errorf("%w: %w", sign.ErrUntrusted, err)
	}
	return nil
}

// Decode fills v, a pointer to a struct with a field Format, from data of that format. It refuses unknown fields: a
// newer version that adds a field raises the format's number, and the field may matter. Errors match
// storage.ErrDamaged.
func Decode(data []byte, format int, v any) error {
	f, err := split(data)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(f.covered)
	if hex.EncodeToString(sum[:]) != f.digest {
		return fmt.Errorf("%w: its content does not match its own sha256", storage.ErrDamaged)
	}
	body := slices.Concat(bytes.TrimSuffix(f.covered, []byte(",\n")), []byte("\n}")) // a copy, so that data does not change
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	err = dec.Decode(v)
	known, ok := formatIn(body, v, err)
	if ok && known != format {
		return fmt.Errorf("%w: its format %d is unknown to this version of dr, which knows %d", storage.ErrDamaged, known, format)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", storage.ErrDamaged, err)
	}
	_, err = dec.Token()
	if err != io.EOF {
		return fmt.Errorf("%w: there is more than one document in it", storage.ErrDamaged)
	}
	return nil
}

// formatIn returns the format that body names; err is the error of decoding body into v. Without an error it reads the
// format from v, because parsing the body twice is slow with thousands of documents.
func formatIn(body []byte, v any, err error) (format int, ok bool) {
	if err == nil {
		return int(reflect.ValueOf(v).Elem().FieldByName("Format").Int()), true
	}
	var known struct{ Format int }
	err = json.Unmarshal(body, &known)
	return known.Format, err == nil
}

// frame holds the parts of a document.
type frame struct {
	covered   []byte // by digest and signature
	digest    string
	signature string
}

// split returns the parts of a document. It refuses data that Encode or Sign would have written differently.
func split(data []byte) (f frame, err error) {
	head, ok := bytes.CutSuffix(data, []byte(documentEnding))
	at := bytes.LastIndex(head, []byte(signatureField))
	begin := at - digestLength - len(digestField)
	if !ok || begin < 0 || string(head[begin:begin+len(digestField)]) != digestField {
		return frame{}, fmt.Errorf("%w: it does not end like a document of dr (truncated, or of another version)", storage.ErrDamaged)
	}
	f.covered, f.digest = head[:begin], string(head[begin+len(digestField):at])
	if strings.Trim(f.digest, "0123456789abcdef") != "" {
		return frame{}, fmt.Errorf("%w: its sha256 is no digest", storage.ErrDamaged)
	}
	written := head[at+len(signatureField):]
	if string(written) == `""` { // the usual case, without the cost of parsing JSON
		return f, nil
	}
	err = json.Unmarshal(written, &f.signature)
	if err != nil || !bytes.Equal(quoteSignature(f.signature), written) {
		return frame{}, fmt.Errorf("%w: its signature is not written as dr does", storage.ErrDamaged)
	}
	return f, nil
}
