package segment

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Validate returns an error if h is invalid. It does not cover the body, which is compared with h as it is read.
func (h Header) Validate() error {
	if h.Format != Format {
		return unknownFormat(h.Format)
	}
	if h.Source != WAL && h.Source != Watch {
		return fmt.Errorf("source %q is unknown to this version of dr", h.Source)
	}
	for _, validate := range []func() error{
		h.validateOrigin, h.validateChain, h.validateSpan, h.validateMarks, h.validateHashes,
	} {
		err := validate()
		if err != nil {
			return err
		}
	}
	err := h.Plain.validate()
	if err != nil {
		return fmt.Errorf("plain: %w", err)
	}
	if int64(h.Requests) > h.Plain.Size/minRecord {
		return fmt.Errorf("%d requests do not fit into a plain body of %d bytes", h.Requests, h.Plain.Size)
	}
	err = h.Stored.validate()
	if err != nil {
		return fmt.Errorf("stored: %w", err)
	}
	return h.Seal.Validate()
}

func unknownFormat(format int) error {
	return fmt.Errorf("its format %d is unknown to this version of dr, which knows %d", format, Format)
}

// validateOrigin checks the fields that identify the log and the rules for replaying it.
func (h Header) validateOrigin() error {
	if h.Cluster == "" || h.ServerVersion == "" || h.Writer == "" || h.Written.IsZero() {
		return errors.New("cluster, serverVersion, writer or written is missing")
	}
	for _, id := range []string{h.ClusterID, h.Member} {
		_, err := strconv.ParseUint(id, 16, 64)
		if err != nil {
			return fmt.Errorf("clusterID or member: %q is no id in hex", id)
		}
	}
	return nil
}

// validateChain checks the fields that refer to the segment or lineage before this one.
func (h Header) validateChain() error {
	if !isHex(h.Lineage, 32) {
		return fmt.Errorf("lineage %q is not 32 hex digits", h.Lineage)
	}
	if h.Seq == 0 {
		return errors.New("seq 0 is below 1")
	}
	if h.Seq == 1 && h.Previous != "" {
		return errors.New("it is the first of its lineage and has a previous one")
	}
	if h.Seq > 1 && !isHex(h.Previous, 64) {
		return fmt.Errorf("previous %q is no digest", h.Previous)
	}
	if h.After == nil {
		return nil
	}
	if h.Seq != 1 {
		return errors.New("only the first of a lineage comes after another lineage")
	}
	if !isHex(h.After.Lineage, 32) || h.After.Lineage == h.Lineage || h.After.Seq == 0 {
		return fmt.Errorf("after: lineage %q, seq %d is no place in another lineage", h.After.Lineage, h.After.Seq)
	}
	return nil
}

// validateSpan checks the covered positions.
func (h Header) validateSpan() error {
	if h.First == 0 || h.Last < h.First {
		return fmt.Errorf("positions %d to %d are no span", h.First, h.Last)
	}
	hasTerm, needsTerm := h.End.Term != 0, h.Source == WAL
	if h.End.Position != h.Last || hasTerm != needsTerm || !isHex(h.End.Digest, 64) {
		return fmt.Errorf("end: position %d, term %d, digest %q do not describe the entry at %d",
			h.End.Position, h.End.Term, h.End.Digest, h.Last)
	}
	if h.Source == Watch {
		return h.validateChanges()
	}
	if h.Requests < 0 || h.Requests > 0 && uint64(h.Requests-1) > h.Last-h.First {
		return fmt.Errorf("%d requests do not fit into positions %d to %d", h.Requests, h.First, h.Last)
	}
	if h.Requests == 0 && len(h.Marks) == 0 && len(h.Hashes) == 0 {
		return errors.New("it is empty: no request, no mark")
	}
	if h.GuessedLeases != 0 {
		return errors.New("it has guessedLeases, but its log has the leases themselves")
	}
	return nil
}

// validateChanges checks that every revision can have a change.
func (h Header) validateChanges() error {
	if h.Last > math.MaxInt64 {
		return fmt.Errorf("position %d is no revision", h.Last)
	}
	if h.Requests < 0 || uint64(h.Requests) < h.Last-h.First+1 {
		return fmt.Errorf("%d changes do not fill revisions %d to %d", h.Requests, h.First, h.Last)
	}
	if h.GuessedLeases < 0 || h.GuessedLeases > h.Requests {
		return fmt.Errorf("guessedLeases %d is not between 0 and %d", h.GuessedLeases, h.Requests)
	}
	return nil
}

// validateMarks checks the marks and their order, on which a plan relies when it searches a time or a revision between
// two marks.
func (h Header) validateMarks() error {
	var before, known Mark // the previous mark, and the last one with a known revision
	for i, m := range h.Marks {
		err := h.checkPosition(m.Position)
		if err != nil {
			return fmt.Errorf("mark %d: %w", i, err)
		}
		if m.NotBefore.IsZero() || m.NotAfter.Before(m.NotBefore) {
			return fmt.Errorf("mark %d: it ends before it begins", i)
		}
		if m.Revision < 0 {
			return fmt.Errorf("mark %d: revision %d is below zero", i, m.Revision)
		}
		err = h.validateMark(m, before.CompactRevision)
		if err != nil {
			return fmt.Errorf("mark %d: %w", i, err)
		}
		if m.Position < before.Position || m.NotBefore.Before(before.NotBefore) || m.NotAfter.Before(before.NotAfter) {
			return fmt.Errorf("mark %d is before the previous one", i)
		}
		err = m.validateRevision(known)
		if err != nil {
			return fmt.Errorf("mark %d: %w", i, err)
		}
		if m.Revision > 0 {
			known = m
		}
		before = m
	}
	return nil
}

// validateRevision compares the revisions of m and of known, the last mark before m with a known revision. They are equal at one
// position, and a later position has no smaller one.
func (m Mark) validateRevision(known Mark) error {
	contradicts := m.Revision < known.Revision || m.Position == known.Position && m.Revision > known.Revision
	if m.Revision > 0 && known.Revision > 0 && contradicts {
		return fmt.Errorf("revision %d contradicts %d at position %d", m.Revision, known.Revision, known.Position)
	}
	return nil
}

// validateMark checks the fields that depend on the source. compacted is the CompactRevision of the mark before m.
func (h Header) validateMark(m Mark, compacted int64) error {
	if h.Source == WAL && m.CompactRevision != 0 {
		return errors.New("it has a compactRevision, but its log has the compactions themselves")
	}
	if h.Source == Watch && uint64(m.Revision) != m.Position {
		return fmt.Errorf("revision %d is not its position, %d", m.Revision, m.Position)
	}
	if m.CompactRevision < compacted || m.CompactRevision > max(m.Revision, 0) {
		return fmt.Errorf("compactRevision %d is not between %d and %d", m.CompactRevision, compacted, m.Revision)
	}
	return nil
}

// validateHashes checks the hashes and their order.
func (h Header) validateHashes() error {
	var before uint64
	for i, hash := range h.Hashes {
		err := h.checkPosition(hash.Position)
		if err != nil {
			return fmt.Errorf("hash %d: %w", i, err)
		}
		if hash.Position < before {
			return fmt.Errorf("hash %d is before the previous one", i)
		}
		if hash.Revision < 1 || hash.CompactRevision < -1 || hash.CompactRevision > hash.Revision {
			return fmt.Errorf("hash %d: revision %d cannot have compactRevision %d", i, hash.Revision, hash.CompactRevision)
		}
		if h.Source == Watch && uint64(hash.Revision) != hash.Position {
			return fmt.Errorf("hash %d: revision %d is not its position, %d", i, hash.Revision, hash.Position)
		}
		before = hash.Position
	}
	return nil
}

// checkPosition returns an error unless position is in the segment or directly before it, where marks may also be.
func (h Header) checkPosition(position uint64) error {
	if position < h.First-1 || position > h.Last {
		return fmt.Errorf("position %d is outside of %d to %d", position, h.First-1, h.Last)
	}
	return nil
}

// validateNext returns an error if a request with that position and term cannot follow before.
func (h *Header) validateNext(before *Record, position, term uint64) error {
	if h.Source == Watch {
		return h.validateChange(before, position, term)
	}
	if position <= before.Position || position > h.Last {
		return fmt.Errorf("a request at position %d is not between %d and %d", position, before.Position+1, h.Last)
	}
	if term == 0 || term < before.Term || term > h.End.Term || position == h.Last && term != h.End.Term {
		return fmt.Errorf("a request at position %d has term %d, after term %d and before term %d",
			position, term, before.Term, h.End.Term)
	}
	return nil
}

// validateChange checks that no revision is missing.
func (h *Header) validateChange(before *Record, position, term uint64) error {
	if position < h.First || position > h.Last || position < before.Position || position > before.Position+1 {
		return fmt.Errorf("a change at revision %d does not follow revision %d", position, before.Position)
	}
	if term != 0 {
		return fmt.Errorf("a change at revision %d has term %d", position, term)
	}
	return nil
}

// validateRequests returns an error if the requests cannot be the body for the header h.
func (h Header) validateRequests(requests []Record) error {
	before := h.beforeFirst()
	for _, r := range requests {
		if r.Kind != before.Kind {
			return fmt.Errorf("a record of kind %d at position %d is no request of source %s", r.Kind, r.Position, h.Source)
		}
		if len(r.Data) == 0 || len(r.Data) > maxData {
			return fmt.Errorf("the request at position %d has %d bytes; 1 to %d are allowed", r.Position, len(r.Data), maxData)
		}
		err := h.validateNext(&before, r.Position, r.Term)
		if err != nil {
			return err
		}
		before = r
	}
	return h.validateLast(before)
}

// beforeFirst returns a placeholder for the request before the first one.
func (h Header) beforeFirst() Record {
	if h.Source == Watch {
		return Record{Kind: Change, Position: h.First - 1}
	}
	return Record{Kind: Request, Position: h.First - 1}
}

// validateLast returns an error if last cannot be the last request.
func (h *Header) validateLast(last Record) error {
	if h.Source == Watch && last.Position != h.Last {
		return fmt.Errorf("the last change is at revision %d, not at %d", last.Position, h.Last)
	}
	return nil
}

// maxBlob is more than the bytes of any segment, so that the sizes of many can be added.
const maxBlob = 1 << 40

func (b Blob) validate() error {
	if !isHex(b.SHA256, 64) {
		return fmt.Errorf("sha256 %q is no digest", b.SHA256)
	}
	if b.Size <= 0 || b.Size > maxBlob {
		return fmt.Errorf("size %d is not between 1 and %d", b.Size, int64(maxBlob))
	}
	return nil
}

func isHex(text string, digits int) bool {
	return len(text) == digits && strings.Trim(text, "0123456789abcdef") == ""
}
