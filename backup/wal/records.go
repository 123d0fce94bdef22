package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
)

// readFile reads the next records of f until budget bytes are used up. ended reports that no further record can be read
// now. readFile makes a new decoder in each call, because a decoder reads the file's size only once and etcd changes it.
func (l *Log) readFile(f *file, newest bool, budget int64) (ended bool, err error) {
	decoder, err := f.decoder(l.crc)
	if err != nil {
		return false, err
	}
	var record walpb.Record
	for begin := f.offset; f.offset-begin < budget; {
		switch err := decoder.Decode(&record); {
		case errors.Is(err, io.EOF): // the end of the file, or a length of zero, which means unwritten space
			return true, nil
		case err != nil && newest && f.mayBeUnfinished(l.crc):
			return true, nil
		case err != nil:
			return false, f.damaged(f.offset, err)
		}
		err := l.applyRecord(f, decoder, &record)
		if err != nil {
			return false, err
		}
		l.crc = decoder.LastCRC()
		f.offset = begin + decoder.LastOffset()
	}
	return false, nil
}

// applyRecord adds one record to the log.
func (l *Log) applyRecord(f *file, decoder wal.Decoder, record *walpb.Record) error {
	var err error
	switch record.GetType() {
	case wal.EntryType:
		var e raftpb.Entry
		err = proto.Unmarshal(record.Data, &e)
		if err == nil {
			err = l.history.add(&e)
			f.last = max(f.last, e.GetIndex())
		}
	case wal.StateType:
		var s raftpb.HardState
		err = proto.Unmarshal(record.Data, &s)
		if err == nil {
			l.history.acceptCommit(claim{index: s.GetCommit(), term: s.GetTerm()})
		}
	case wal.SnapshotType:
		var s walpb.Snapshot
		err = proto.Unmarshal(record.Data, &s)
		if err == nil {
			l.history.snapshot(s.GetIndex(), s.GetTerm())
		}
	case wal.MetadataType:
		err = l.checkIDs(record.Data)
	case wal.CrcType: // each file begins with the checksum of all records before it
		if l.crc != 0 && record.GetCrc() != l.crc {
			err = errors.New("it does not continue the file before it")
		}
		decoder.UpdateCRC(record.GetCrc())
	default:
		err = fmt.Errorf("a record of type %d", record.GetType())
	}
	if err == nil || errors.Is(err, ErrForked) {
		return err
	}
	return f.damaged(f.offset, err)
}

// checkIDs compares a file's metadata with the ids from readIDs: all files of a member have the same.
func (l *Log) checkIDs(data []byte) error {
	var m pb.Metadata
	err := proto.Unmarshal(data, &m)
	if err != nil {
		return err
	}
	if m.GetClusterID() != l.cluster || m.GetNodeID() != l.member {
		return fmt.Errorf("it is of member %x of cluster %x, other files are of member %x of cluster %x: move the files of the other member out of %s",
			m.GetNodeID(), m.GetClusterID(), l.member, l.cluster, l.dir)
	}
	return nil
}

// readIDs sets the ids of the log from the metadata at the head of a file.
func (l *Log) readIDs(f *file) error {
	decoder, err := f.decoder(0)
	if err != nil {
		return err
	}
	var record walpb.Record
	for record.GetType() != wal.MetadataType {
		err := decoder.Decode(&record)
		if err != nil {
			return f.damaged(decoder.LastOffset(), fmt.Errorf("no metadata at its head: %w", err))
		}
		if record.GetType() == wal.CrcType {
			decoder.UpdateCRC(record.GetCrc())
		}
	}
	var m pb.Metadata
	err = proto.Unmarshal(record.Data, &m)
	if err != nil {
		return f.damaged(0, err)
	}
	l.cluster, l.member = m.GetClusterID(), m.GetNodeID()
	return nil
}

// decoder returns a decoder of the file from f.offset on. crc is the checksum of the records before; 0: unknown.
func (f *file) decoder(crc uint32) (wal.Decoder, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read the log of an etcd member: %w", err)
	}
	rest := info.Size() - f.offset
	if rest < 0 {
		return nil, f.damaged(info.Size(), errors.New("it has become shorter than the part already read"))
	}
	d := wal.NewDecoder(part{io.NewSectionReader(f.File, f.offset, rest), info, rest})
	d.UpdateCRC(crc)
	return d, nil
}

// part is the rest of a file. Its FileInfo has the size of the rest, because the decoder refuses lengths beyond that size.
type part struct {
	io.Reader
	whole fs.FileInfo
	size  int64
}

func (p part) FileInfo() (fs.FileInfo, error) { return sized{p.whole, p.size}, nil }

type sized struct {
	fs.FileInfo
	size int64
}

func (s sized) Size() int64 { return s.size }

// sectorBytes is the unit in which a disk writes (storage/wal/decoder.go, minSectorSize).
const sectorBytes = 512

// mayBeUnfinished reports whether the next record of the newest file, which cannot be decoded, may still become intact.
// The record counts as damaged only if the member has written after it and it still cannot be decoded when it is read
// again: the member writes in order. A record that lacks a sector was torn by a crash, and the member removes it when it
// starts.
//
// The end of a record with a damaged length is unknown, so such a record is detected only when the next file begins.
func (f *file) mayBeUnfinished(crc uint32) bool {
	record, ok := f.frame()
	if !ok || record.next == 0 {
		return true
	}
	again, err := f.decoder(crc)
	if err != nil || again.Decode(new(walpb.Record)) == nil {
		return true
	}
	record, ok = f.frame()
	return !ok || record.torn
}

// frame describes a record on disk.
type frame struct {
	size int64  // bytes, with padding and without the length field
	torn bool   // it lacks a sector
	next uint64 // the length field of the record after it; 0: unwritten space
}

// frame reads the record at f.offset and the length field after it. ok is false if the file ends before them.
func (f *file) frame() (r frame, ok bool) {
	var length [8]byte
	_, err := f.ReadAt(length[:], f.offset)
	if err != nil {
		return r, false
	}
	size, padding := frameSize(binary.LittleEndian.Uint64(length[:]))
	if size > segmentBytes {
		return r, false
	}
	data := make([]byte, size+padding+8)
	_, err = f.ReadAt(data, f.offset+8)
	if err != nil {
		return r, false
	}
	body := data[:size+padding]
	return frame{size: int64(len(body)), torn: lacksSector(body, f.offset+8), next: binary.LittleEndian.Uint64(data[len(body):])}, true
}

// frameSize decodes a length field into the sizes of the data and of its padding (storage/wal/encoder.go,
// encodeFrameSize).
func frameSize(length uint64) (size, padding int64) {
	size = int64(length &^ (0xff << 56))
	if length>>63 == 1 {
		padding = int64(length >> 56 & 7)
	}
	return size, padding
}

// lacksSector reports whether one of the sectors of data, which begins at offset in the file, is all zeros.
func lacksSector(data []byte, offset int64) bool {
	for len(data) > 0 {
		n := min(int64(len(data)), sectorBytes-offset%sectorBytes)
		zero := true
		for _, b := range data[:n] {
			zero = zero && b == 0
		}
		if zero {
			return true
		}
		data, offset = data[n:], offset+n
	}
	return false
}
