package azure

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	_ "github.com/etcd-dr/etcd-dr/test/rapidseed"
)

func TestBlockIDsHaveOneLength(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := blockID{Mark: blockMark, Sent: rapid.Int64().Draw(t, "sent"), Number: rapid.Uint32().Draw(t, "number")}
		copy(id.Put[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "put"))
		text := id.String()
		got, ok := parseBlockID(text)
		if !ok || got != id || len(text) != len(blockID{}.String()) {
			t.Errorf("%+v becomes %q and then %+v, %v", id, text, got, ok)
		}
	})
}

// FuzzParseBlockID fuzzes ids, which any writer of the container can choose.
func FuzzParseBlockID(f *testing.F) {
	f.Add(blockID{Mark: blockMark, Number: 1}.String())
	f.Add("AAAA")
	f.Fuzz(func(t *testing.T, text string) {
		id, ok := parseBlockID(text)
		if ok && (id.Mark != blockMark || len(text) < len(id.String())) {
			t.Errorf("%q is taken for %+v", text, id)
		}
	})
}

func FuzzParseConnection(f *testing.F) {
	f.Add("AccountName=a;AccountKey=a2V5==;EndpointSuffix=core.windows.net")
	f.Add("BlobEndpoint=https://a;SharedAccessSignature=?sv=1&sig=secret")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseConnection(text)
		if err == nil && s.key == "" && s.sas == "" {
			t.Error("neither key nor signature, and no error")
		}
		if err != nil && strings.Contains(err.Error(), text) && len(text) > 20 {
			t.Errorf("the error shows what may be secret: %v", err)
		}
	})
}

func FuzzFullSize(f *testing.F) {
	f.Add("bytes 0-9/100")
	f.Add("bytes 0-9/*")
	f.Fuzz(func(t *testing.T, text string) {
		size, err := fullSize(nil, &text)
		if err == nil && size < 0 {
			t.Errorf("%q is %d", text, size)
		}
	})
}
