//! Where a log ends, and what is damage: every truncation, every flipped bit, leftovers, missing files.

mod common;

use base::Position;
use common::*;
use env::{Disk, MemDisk};
use std::path::PathBuf;
use std::sync::Arc;
use wal::group::GROUP_HEADER;
use wal::segment::SEGMENT_HEADER;
use wal::{Error, LogEnd};

/// A log of groups 1..=n, each synced, of about `size` bytes; where each group begins in the last segment, and the path.
fn log_of(n: u32, size: usize) -> (MemDisk, PathBuf, Vec<u64>) {
    let (mem, disk) = mem();
    let (dir, _, recovered) = recover(disk).unwrap();
    let mut log = writer(&dir, &recovered).unwrap();
    let mut places = Vec::new();
    for i in 1..=n {
        places.push(log.append_group(&[commit(i, size)], at(i - 1)).unwrap().at);
        log.sync().unwrap();
    }
    let last = places.last().unwrap().segment;
    let offsets = places
        .iter()
        .filter(|p| p.segment == last)
        .map(|p| p.offset)
        .collect();
    let path = segment_path(&dir, dir.log().list().unwrap().len() - 1);
    (mem, path, offsets)
}

fn dyn_disk(disk: &MemDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

#[test]
fn every_truncation_recovers_a_prefix_and_goes_on() {
    // One segment, and the last of several.
    for groups in [3, 11] {
        let (disk, path, offsets) = log_of(groups, 300);
        let content = disk.read(&path).unwrap();
        let before = groups - offsets.len() as u32;
        let end = offsets.last().unwrap() + GROUP_HEADER + 320;
        for len in 0..=end as usize {
            let fork = disk.fork();
            put_file(&fork, &path, &content[..len]);
            let (dir, memory, recovered) = recover(dyn_disk(&fork)).unwrap();
            let read = lasts(&memory.groups.into_inner());
            let mut whole = offsets[1..].iter().filter(|o| **o <= len as u64).count() as u32;
            if read.len() as u32 == groups {
                whole = offsets.len() as u32;
            }
            assert_eq!(
                read,
                (1..=before + whole).collect::<Vec<_>>(),
                "cut to {len}"
            );
            let at_boundary = len as u64 == SEGMENT_HEADER
                || offsets.contains(&(len as u64))
                || read.len() as u32 == groups;
            assert_eq!(
                recovered.cut.is_some(),
                !at_boundary && len > 0 || len == 0,
                "cut to {len}: {:?}",
                recovered.cut
            );

            let mut log = writer(&dir, &recovered).unwrap();
            log.append_group(&[commit(99, 40)], at(0)).unwrap();
            log.sync().unwrap();
            drop((log, dir));
            let (_, memory, recovered) = recover(dyn_disk(&fork)).unwrap();
            assert_eq!(recovered.cut, None);
            let again = lasts(&memory.groups.into_inner());
            assert_eq!(
                (again.len(), again.last()),
                (read.len() + 1, Some(&99)),
                "cut to {len}"
            );
        }
    }
}

#[test]
fn every_flipped_bit_of_a_durable_group_is_found_and_located() {
    let (disk, path, offsets) = log_of(3, 150);
    let content = disk.read(&path).unwrap();
    for at in offsets[1]..offsets[2] {
        for bit in 0..8 {
            let mut damaged = content.clone();
            damaged[at as usize] ^= 1 << bit;
            let fork = disk.fork();
            put_file(&fork, &path, &damaged);
            match recover(dyn_disk(&fork)).err() {
                Some(Error::Corrupt { file, offset, .. }) => {
                    assert_eq!((&file, offset), (&path, offsets[1]))
                }
                other => panic!("byte {at} bit {bit}: {other:?}"),
            }
        }
    }
}

#[test]
fn every_flipped_bit_of_the_last_group_cuts_just_that() {
    let (disk, path, offsets) = log_of(3, 50);
    let content = disk.read(&path).unwrap();
    let end = offsets[2] + GROUP_HEADER + 64;
    for at in offsets[2]..end {
        let mut damaged = content.clone();
        damaged[at as usize] ^= 1 << (at % 8);
        let fork = disk.fork();
        put_file(&fork, &path, &damaged);
        let (_, memory, recovered) = recover(dyn_disk(&fork)).unwrap();
        assert_eq!(lasts(&memory.groups.into_inner()), [1, 2], "byte {at}");
        let cut = recovered.cut.unwrap();
        assert_eq!((&cut.file, cut.offset), (&path, offsets[2]));
        assert!(cut.bytes > 0 && cut.bytes <= end - offsets[2]);
    }
}

#[test]
fn a_flipped_bit_in_any_segment_header_is_damage() {
    let (disk, path, _) = log_of(11, 1000);
    let (dir, ..) = recover(dyn_disk(&disk.fork())).unwrap();
    let first = segment_path(&dir, 0);
    for path in [first, path] {
        let content = disk.read(&path).unwrap();
        for at in 0..SEGMENT_HEADER as usize {
            let mut damaged = content.clone();
            damaged[at] ^= 4;
            let fork = disk.fork();
            put_file(&fork, &path, &damaged);
            let error = recover(dyn_disk(&fork)).err().unwrap();
            assert!(
                matches!(&error, Error::Corrupt { file, offset: 0, .. } if *file == path),
                "byte {at}: {error}"
            );
        }
    }
}

#[test]
fn damage_or_a_hole_before_the_last_segment_is_refused() {
    let (disk, _, _) = log_of(11, 1000);
    let (dir, ..) = recover(dyn_disk(&disk)).unwrap();
    let segments: Vec<PathBuf> = (0..dir.log().list().unwrap().len())
        .map(|i| segment_path(&dir, i))
        .collect();
    assert!(segments.len() >= 3);
    drop(dir);

    // The last group of a segment that is not the last.
    let mut damaged = disk.read(&segments[1]).unwrap();
    let end = damaged.iter().rposition(|b| *b != 0).unwrap();
    damaged[end] ^= 1;
    let fork = disk.fork();
    put_file(&fork, &segments[1], &damaged);
    let error = recover(dyn_disk(&fork)).err().unwrap();
    assert!(
        matches!(&error, Error::Corrupt { file, .. } if *file == segments[1]),
        "{error}"
    );
    let text = error.to_string();
    assert!(
        text.contains("restore it from a backup") && text.contains("offset"),
        "{text}"
    );

    for lost in [0, 1] {
        let fork = disk.fork();
        fork.remove(&segments[lost]).unwrap();
        let error = recover(dyn_disk(&fork)).err().unwrap();
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    }
    // The last two gone: nothing in the log can tell, but a checkpoint can.
    let fork = disk.fork();
    let (dir, ..) = recover(dyn_disk(&fork)).unwrap();
    dir.begin_checkpoint(at(1)).unwrap().finish(at(11)).unwrap();
    drop(dir);
    recover(dyn_disk(&fork)).unwrap();
    for lost in &segments[segments.len() - 2..] {
        fork.remove(lost).unwrap();
    }
    let error = recover(dyn_disk(&fork)).err().unwrap();
    assert!(
        error
            .to_string()
            .contains("the checkpoint was finished when 1.11 was durable"),
        "{error}"
    );
}

#[test]
fn of_two_groups_before_one_sync_a_crash_may_keep_the_second_only() {
    let (mem, disk) = mem();
    let (dir, _, recovered) = recover(disk).unwrap();
    let mut log = writer(&dir, &recovered).unwrap();
    log.append_group(&[commit(1, 60)], at(0)).unwrap();
    log.sync().unwrap();
    let torn = log.append_group(&[commit(2, 60)], at(0)).unwrap();
    let kept = log.append_group(&[commit(3, 60)], at(0)).unwrap();
    let path = segment_path(&dir, 0);
    drop((log, dir));
    let mut content = mem.read(&path).unwrap();
    content[torn.at.offset as usize + 140] ^= 1;
    put_file(&mem, &path, &content);

    let (dir, memory, recovered) = recover(dyn_disk(&mem)).unwrap();
    assert_eq!(
        lasts(&memory.groups.into_inner()),
        [1],
        "neither was acknowledged"
    );
    assert_eq!(recovered.cut.as_ref().unwrap().offset, torn.at.offset);
    // A new group just as long: what stood after the old one must not come back.
    let mut log = writer(&dir, &recovered).unwrap();
    let again = log.append_group(&[commit(2, 60)], at(1)).unwrap();
    assert_eq!(again.at.offset + again.bytes, kept.at.offset);
    log.sync().unwrap();
    // Not even if clearing the tail had never reached the disk.
    let now = mem.read(&path).unwrap();
    let mut stale = now.clone();
    let from = kept.at.offset as usize;
    stale[from..].copy_from_slice(&content[from..]);
    for bytes in [now, stale] {
        let fork = mem.fork();
        put_file(&fork, &path, &bytes);
        let (_, memory, _) = recover(dyn_disk(&fork)).unwrap();
        assert_eq!(lasts(&memory.groups.into_inner()), [1, 2]);
    }
}

#[test]
fn leftovers_of_a_recycled_file_are_never_taken_for_groups() {
    let (mem, disk) = mem();
    let (dir, _, recovered) = recover(disk).unwrap();
    let mut log = writer(&dir, &recovered).unwrap();
    // Same sizes in every life of the file: the old groups stand exactly where new ones would.
    for n in 1..=24 {
        log.append_group(&[commit(n, 900)], at(n - 1)).unwrap();
        log.sync().unwrap();
        dir.begin_checkpoint(at(n)).unwrap().finish(at(n)).unwrap();
        dir.prune(Position::MAX).unwrap();
    }
    let offset = log
        .append_group(&[commit(25, 900)], at(24))
        .unwrap()
        .at
        .offset as usize;
    let path = segment_path(&dir, dir.log().list().unwrap().len() - 1);
    drop((log, dir));
    let content = mem.read(&path).unwrap();
    assert!(
        content[offset + 2000..].iter().any(|b| *b != 0),
        "the file was recycled"
    );
    // The new group reached the disk in part: any prefix of it over the leftovers.
    for kept in (0..GROUP_HEADER as usize + 900).step_by(7) {
        let fork = mem.fork();
        let mut torn = content.clone();
        torn[offset + kept..offset + GROUP_HEADER as usize + 920].fill(0xAA);
        put_file(&fork, &path, &torn);
        let (dir, _, recovered) = recover(dyn_disk(&fork)).unwrap();
        assert_eq!(recovered.last, at(24), "kept {kept}");
        assert_eq!(
            recovered.cut.is_some(),
            kept >= 48,
            "reported when its header tells: {kept}"
        );
        let mut log = writer(&dir, &recovered).unwrap();
        log.append_group(&[commit(26, 10)], at(24)).unwrap();
        drop((log, dir));
        assert_eq!(recover(dyn_disk(&fork)).unwrap().2.last, at(26));
    }
}

#[test]
fn a_log_stored_as_data_is_not_replayed() {
    let (mem, disk) = mem();
    let (dir, _, recovered) = recover(disk.clone()).unwrap();
    let mut log = writer(&dir, &recovered).unwrap();
    for n in 1..=3 {
        log.append_group(&[commit(n, 100)], at(n - 1)).unwrap();
        log.sync().unwrap();
    }
    let path = segment_path(&dir, 0);
    let copy = mem.read(&path).unwrap()[..1024].to_vec();
    let outer = log
        .append_group(
            &[wal::Commit {
                position: at(4),
                heads: vec![0; 8],
                data: copy,
            }],
            at(3),
        )
        .unwrap();
    drop((log, dir));
    // Torn in its header: everything inside it is now found by the search for later groups.
    let mut content = mem.read(&path).unwrap();
    content[outer.at.offset as usize + 9] ^= 1;
    put_file(&mem, &path, &content);
    let (_, memory, recovered) = recover(disk).unwrap();
    assert_eq!(lasts(&memory.groups.into_inner()), [1, 2, 3]);
    assert!(recovered.cut.is_some());
}

/// Right checksums do not make a group the right one: each field that says where it belongs is looked at.
#[test]
fn a_whole_group_in_the_wrong_place_is_not_followed() {
    let (disk, path, offsets) = log_of(2, 100);
    let content = disk.read(&path).unwrap();
    let group = offsets[1] as usize;
    for (what, field) in [
        ("stream", 16),
        ("term", 32),
        ("segment", 40),
        ("offset", 48),
        ("first", 64),
        ("chain", 112),
    ] {
        let mut altered = content.clone();
        let head = &mut altered[group..group + 128];
        if what == "first" {
            // At the position of the group before, which is the last byte that differs.
            head[field] = 1;
        } else if what == "term" {
            head[field] = 0;
        } else {
            head[field] ^= 1;
        }
        assert_ne!(altered, content, "{what}");
        let crc = crc32c::crc32c(&altered[group..group + 124]);
        altered[group + 124..group + 128].copy_from_slice(&crc.to_le_bytes());
        let fork = disk.fork();
        put_file(&fork, &path, &altered);
        let (_, memory, recovered) = recover(dyn_disk(&fork)).unwrap();
        assert_eq!(lasts(&memory.groups.into_inner()), [1], "{what}");
        assert_eq!(recovered.cut.unwrap().offset, offsets[1], "{what}");
    }
}

/// A segment's name promises that no position in it is lower. When its first group did not survive, the next may be.
#[test]
fn a_segment_that_lost_its_first_group_gives_up_its_name() {
    let (mem, disk) = mem();
    let (dir, _, recovered) = recover(disk).unwrap();
    let mut log = writer(&dir, &recovered).unwrap();
    log.append_group(&[commit(1, 3000)], at(0)).unwrap();
    log.append_group(&[commit(100, 3000)], at(0)).unwrap();
    drop((log, dir));
    mem.power_cut(env::PowerCut::LoseAll);
    let (dir, _, recovered) = recover(dyn_disk(&mem)).unwrap();
    assert_eq!(
        (recovered.last, dir.log().list().unwrap().len()),
        (at(1), 2)
    );
    let mut log = writer(&dir, &recovered).unwrap();
    log.append_group(&[commit(50, 10)], at(0)).unwrap();
    log.sync().unwrap();
    assert_eq!(dir.log().list().unwrap()[1].first, at(50));
    assert_eq!(lasts(&read_all(&dir, at(1)).unwrap().0), [50]);
    drop((log, dir));
    mem.power_cut(env::PowerCut::LoseAll);
    assert_eq!(recover(dyn_disk(&mem)).unwrap().2.last, at(50));
}

#[test]
fn segments_of_another_cluster_are_refused() {
    let (disk, path, _) = log_of(2, 100);
    let (_, other) = mem();
    let options = wal::DirOptions {
        cluster: Some(77),
        ..small()
    };
    drop(wal::DataDir::open(&env_on(other.clone()), &root(), options.clone()).unwrap());
    put_file(&*other, &path, &disk.read(&path).unwrap());
    let dir = wal::DataDir::open(&env_on(other), &root(), options).unwrap();
    let error = read_all(&dir, Position::ZERO).unwrap_err();
    assert!(error.to_string().contains("another cluster"), "{error}");
}

#[test]
#[should_panic(expected = "terms only grow")]
fn a_writer_of_an_older_term_is_a_bug() {
    let (_, disk) = mem();
    let (dir, ..) = recover(disk).unwrap();
    let end = LogEnd {
        term: 2,
        ..LogEnd::empty(at(1))
    };
    let _ = wal::LogWriter::resume(dir.log().clone(), &end, 1);
}
