//! `log`: bytes of a flush group. If the first byte of the input is odd, the lengths and checksums of the rest are made right
//! first, so that what stands behind the checksums is reached.

use base::Position;
use base::record::{Commit, CommitBuilder, RecordKind};
use wal::Group;
use wal::group::GROUP_HEADER;

const HEADER: usize = GROUP_HEADER as usize;

pub fn run(bytes: &[u8]) -> bool {
    let Some((&mode, group)) = bytes.split_first() else {
        return false;
    };
    let mut group = group.to_vec();
    if mode % 2 == 1 {
        seal(&mut group);
    }
    let Ok(group) = Group::from_bytes(group) else {
        return false;
    };
    assert_eq!(group.as_bytes().len() as u64, group.header().len());
    let (mut heads, mut data) = (group.heads(), group.data());
    for _ in 0..group.header().count {
        let Ok(commit) = Commit::take(&mut heads, &mut data) else {
            return false;
        };
        for record in commit.iter() {
            let Ok(record) = record else { return false };
            assert!(record.key.len() + record.row.len() <= group.data().len());
        }
    }
    true
}

/// Makes a header that fits what follows it: magic, version, lengths within the bytes, checksums.
fn seal(group: &mut Vec<u8>) {
    if group.len() < HEADER {
        return;
    }
    let body = group.len() - HEADER;
    group.resize(HEADER + body.next_multiple_of(8), 0);
    let padding = (group.len() - HEADER - body) as u64;
    let read = |at: usize| u64::from_le_bytes(group[at..at + 8].try_into().expect("8 bytes"));
    let heads = read(88) % (body as u64 + 1);
    let mut put = |at: usize, field: &[u8]| group[at..at + field.len()].copy_from_slice(field);
    put(0, b"CANONGRP");
    put(8, &wal::group::LOG_FORMAT.to_le_bytes());
    put(88, &heads.to_le_bytes());
    put(96, &(body as u64 - heads).to_le_bytes());
    assert!(
        padding < 8,
        "the length was a multiple of 8 but for the padding"
    );
    let data = HEADER + heads as usize;
    let crcs = [
        crc32c::crc32c(&group[HEADER..data]),
        crc32c::crc32c(&group[data..]),
    ];
    group[104..108].copy_from_slice(&crcs[0].to_le_bytes());
    group[108..112].copy_from_slice(&crcs[1].to_le_bytes());
    let crc = crc32c::crc32c(&group[..124]);
    group[124..128].copy_from_slice(&crc.to_le_bytes());
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for commits in 1..4u32 {
        let (mut heads, mut data) = (Vec::new(), Vec::new());
        for i in 0..commits {
            let mut commit = CommitBuilder::new();
            commit.push(RecordKind::Put, 7, b"key", b"a row of some bytes");
            commit.push(RecordKind::Delete, 7, b"gone", b"");
            let (h, d) = commit.finish(Position::new(1, i), 0);
            heads.extend(h);
            data.extend(d);
        }
        let mut group = vec![0; HEADER];
        group[12..16].copy_from_slice(&commits.to_le_bytes());
        group[72..80].copy_from_slice(&Position::new(1, commits - 1).as_u64().to_le_bytes());
        group[88..96].copy_from_slice(&(heads.len() as u64).to_le_bytes());
        group.extend(heads);
        group.extend(data);
        out.push([&[1], &group[..]].concat());
        seal(&mut group);
        out.push([&[0], &group[..]].concat());
    }
    out
}
