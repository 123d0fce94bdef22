package segment

import "io"

// Check reads the segment that begins at r to its end and holds its bytes against its header, without a key: what is
// sealed may still not open. Errors are as ReadHeader's.
func Check(r io.Reader) (h Header, digest string, err error) {
	h, digest, err = ReadHeader(r)
	if err != nil {
		return Header{}, "", err
	}
	_, err = io.Copy(io.Discard, newVerified(r, "sealed body", h.Stored))
	return h, digest, err
}
