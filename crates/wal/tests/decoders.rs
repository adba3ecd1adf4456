//! Decoders on bytes that nobody wrote: no panic, no reservation beyond what is there, no nonsense accepted.

mod common;

use base::Position;
use common::*;
use proptest::prelude::*;
use wal::checkpoint::CheckpointReader;
use wal::segment::{SEGMENT_HEADER, SegmentHeader};
use wal::{Group, GroupHeader};

/// One valid group as shipped.
fn valid_group() -> Vec<u8> {
    let (_, disk) = mem();
    let (dir, _, recovered) = recover(disk).unwrap();
    let mut log = writer(&dir, &recovered).unwrap();
    log.append_group(&[commit(1, 30), commit(2, 5)], at(0))
        .unwrap();
    read_all(&dir, Position::ZERO).unwrap().0[0]
        .as_bytes()
        .to_vec()
}

#[test]
fn no_flipped_bit_of_a_shipped_group_is_accepted() {
    let valid = valid_group();
    assert!(Group::from_bytes(valid.clone()).is_ok());
    for i in 0..valid.len() {
        for bit in 0..8 {
            let mut damaged = valid.clone();
            damaged[i] ^= 1 << bit;
            assert!(Group::from_bytes(damaged).is_err(), "byte {i} bit {bit}");
        }
        assert!(
            Group::from_bytes(valid[..i].to_vec()).is_err(),
            "cut to {i}"
        );
    }
    assert!(
        Group::from_bytes([&valid[..], &[0]].concat()).is_err(),
        "one byte more"
    );
}

/// Puts a right checksum on a header with any fields: only then the checks behind it are reached.
fn sealed(mut header: Vec<u8>) -> Vec<u8> {
    let crc = crc32c::crc32c(&header[..124]);
    header[124..128].copy_from_slice(&crc.to_le_bytes());
    header
}

proptest! {
    #[test]
    fn random_bytes_are_no_group(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(Group::from_bytes(bytes.clone()).is_err());
        prop_assert!(SegmentHeader::decode(&bytes).is_err());
    }

    /// A header with a right checksum and any lengths: huge ones, and sums that overflow.
    #[test]
    fn any_sealed_header_is_handled(
        place in 12usize..120, value in prop_oneof![any::<u64>(), Just(u64::MAX), Just(1 << 30), Just(0)],
        heads in any::<u64>(), tail in prop::collection::vec(any::<u8>(), 0..64)
    ) {
        let mut bytes = valid_group();
        bytes.truncate(128);
        bytes[88..96].copy_from_slice(&heads.to_le_bytes());
        let end = (place + 8).min(124);
        bytes[place..end].copy_from_slice(&value.to_le_bytes()[..end - place]);
        let bytes = sealed(bytes);
        if let Ok((header, _)) = GroupHeader::decode(&bytes) {
            prop_assert!(header.len() <= wal::MAX_GROUP && header.count > 0);
            prop_assert!(Group::from_bytes([bytes, tail].concat()).is_err());
        }
    }

    /// A segment whose group claims to be longer than the file: the end, whatever it claims.
    #[test]
    fn a_log_of_random_bytes_ends_or_is_refused(garbage in prop::collection::vec(any::<u8>(), 0..3000), claim in any::<u64>()) {
        let (_, disk) = mem();
        let (dir, _, recovered) = recover(disk.clone()).unwrap();
        let mut log = writer(&dir, &recovered).unwrap();
        log.append_group(&[commit(1, 10)], at(0)).unwrap();
        let place = log.append_group(&[commit(2, 10)], at(0)).unwrap().at.offset as usize;
        let path = segment_path(&dir, 0);
        drop((log, dir));
        let mut content = disk.read(&path).unwrap();
        content.truncate(place + 128);
        content[place + 96..place + 104].copy_from_slice(&claim.to_le_bytes());
        let header = sealed(content[place..].to_vec());
        content.truncate(place);
        content.extend(header);
        content.extend(garbage);
        put_file(&*disk, &path, &content);
        prop_assert_eq!(recover(disk).unwrap().2.last, at(1));
    }

    #[test]
    fn a_checkpoint_of_random_bytes_is_refused(
        garbage in prop::collection::vec(any::<u8>(), 0..2000), keep in 0usize..600, place in 0usize..600
    ) {
        let (_, disk) = mem();
        let dir = open(disk.clone()).unwrap();
        let mut checkpoint = dir.begin_checkpoint(at(1)).unwrap();
        for n in 0..4u8 {
            checkpoint.put(u32::from(n), at(1), &[n], Some(&[n; 40])).unwrap();
        }
        checkpoint.finish(at(1)).unwrap();
        let path = root().join("checkpoint/0000000000000001.ckpt");
        let valid = disk.read(&path).unwrap();
        let spliced = [&valid[..keep.min(valid.len())], &garbage, &valid[place.min(valid.len())..]].concat();
        put_file(&*disk, &path, &spliced);
        if spliced != valid && let Ok(reader) = CheckpointReader::open(&*disk, &path) {
            // The frame is whole; then a chunk is not, or only unread padding changed.
            for chunk in reader.chunks() {
                if let Ok(rows) = reader.read_chunk(chunk) {
                    prop_assert_eq!(rows.len(), 1);
                }
            }
        }
    }
}

#[test]
fn a_trailer_that_points_anywhere_is_refused() {
    let (_, disk) = mem();
    let dir = open(disk.clone()).unwrap();
    dir.begin_checkpoint(at(1)).unwrap().finish(at(1)).unwrap();
    let path = root().join("checkpoint/0000000000000001.ckpt");
    let valid = disk.read(&path).unwrap();
    let trailer = valid.len() - 64;
    for field in [8, 16, 24, 32, 40] {
        for value in [u64::MAX, u64::MAX - 31, 1 << 40, 1] {
            let mut bytes = valid.clone();
            bytes[trailer + field..trailer + field + 8].copy_from_slice(&value.to_le_bytes());
            let crc = crc32c::crc32c(&bytes[trailer..trailer + 60]);
            bytes[trailer + 60..].copy_from_slice(&crc.to_le_bytes());
            put_file(&*disk, &path, &bytes);
            let outcome = CheckpointReader::open(&*disk, &path);
            let unchanged = bytes == valid;
            // Field 16 is the end position: any value at or above the start is possible.
            let possible = unchanged || field == 16 && value > at(1).as_u64();
            assert_eq!(outcome.is_ok(), possible, "field {field} = {value}");
        }
    }
    assert_eq!(SEGMENT_HEADER % 8, 0, "groups begin at multiples of 8");
}
