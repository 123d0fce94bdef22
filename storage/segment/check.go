package segment

import "io"

// Check reads a whole segment from r and compares its bytes with its header. It needs no key, so the body may still
// fail to open. Errors are those of ReadHeader.
func Check(r io.Reader) (h Header, digest string, err error) {
	h, digest, err = ReadHeader(r)
	if err != nil {
		return Header{}, "", err
	}
	_, err = io.Copy(io.Discard, newVerified(r, "sealed body", h.Stored))
	return h, digest, err
}
