package azure

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc64"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
)

// maxBlocks is the largest number of blocks in a blob (Put Block List, "Blob Storage limits").
const maxBlocks = 50_000

// putID is the random id of a Put.
type putID [16]byte

// blockMark begins the id of each block that this package sends, and distinguishes it from blocks of other programs.
var blockMark = [4]byte{'d', 'r', 'b', '1'}

// blockID is a block's id before base64. All ids have the same length, because Azure requires that under one key. An id
// contains the time at which the block was sent, because Azure does not report the age of uncommitted blocks.
type blockID struct {
	Mark   [4]byte
	Put    putID
	Sent   int64 // Unix time in seconds, by the sender's clock
	Number uint32
}

func (id blockID) String() string {
	text, _ := binary.Append(nil, binary.BigEndian, id) // fixed size: no error
	return base64.StdEncoding.EncodeToString(text)
}

// parseBlockID parses the id of a block. It returns false for blocks of other programs.
func parseBlockID(text string) (blockID, bool) {
	var id blockID
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) != binary.Size(id) {
		return blockID{}, false
	}
	_, err = binary.Decode(raw, binary.BigEndian, &id)
	return id, err == nil && id.Mark == blockMark
}

// blocks holds the ids of one Put's blocks.
type blocks struct {
	mu  sync.Mutex
	ids map[int]string // by number; guarded by mu
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

// list returns the ids of the blocks 1 to n.
func (b *blocks) list(n int) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]string, n)
	for i := range all {
		all[i] = b.ids[i+1]
	}
	return all
}

// crcTable is the table for the polynomial of Azure's CRC64.
var crcTable = crc64.MakeTable(0x9a6c9329ac4bc9b5)

// checksum returns the checksum of a part. The SDK's own computation copies the part.
func checksum(p []byte) blob.TransferValidationTypeCRC64 {
	return blob.TransferValidationTypeCRC64(crc64.Checksum(p, crcTable))
}
