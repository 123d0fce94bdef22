package azure

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc64"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
)

// maxBlocks is how many blocks a blob may have (Put Block List, "Blob Storage limits").
const maxBlocks = 50_000

// putID is drawn for each Put.
type putID [16]byte

// blockMark begins the id of each block of ours, so that blocks of other programs are left alone.
var blockMark = [4]byte{'d', 'r', 'b', '1'}

// blockID is the id of a block before base64. All have one length, for Azure refuses two lengths under one key. It
// carries when the block was sent: the store does not say how old an uncommitted block is.
type blockID struct {
	Mark   [4]byte
	Put    putID
	Sent   int64 // Unix time in seconds, by the clock of whoever sent it
	Number uint32
}

func (id blockID) String() string {
	text, _ := binary.Append(nil, binary.BigEndian, id) // fixed size: no error
	return base64.StdEncoding.EncodeToString(text)
}

// parseBlockID reads the id of one of our blocks; others give false.
func parseBlockID(text string) (blockID, bool) {
	var id blockID
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) != binary.Size(id) {
		return blockID{}, false
	}
	_, err = binary.Decode(raw, binary.BigEndian, &id)
	return id, err == nil && id.Mark == blockMark
}

// blocks are the ids of one Put's blocks.
type blocks struct {
	mu  sync.Mutex
	ids map[int]string // by number
}

func (b *blocks) add(put putID, n int) string {
	id := blockID{Mark: blockMark, Put: put, Sent: time.Now().Unix(), Number: uint32(n)}.String()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ids == nil {
		b.ids = map[int]string{}
	}
	b.ids[n] = id
	return id
}

// list is the ids of the blocks 1 to n.
func (b *blocks) list(n int) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]string, n)
	for i := range all {
		all[i] = b.ids[i+1]
	}
	return all
}

// crcTable is of the polynomial that Azure checks its CRC64 with.
var crcTable = crc64.MakeTable(0x9a6c9329ac4bc9b5)

// checked is the checksum of a part. The SDK's own way to compute one copies the part.
func checked(p []byte) blob.TransferValidationTypeCRC64 {
	return blob.TransferValidationTypeCRC64(crc64.Checksum(p, crcTable))
}
