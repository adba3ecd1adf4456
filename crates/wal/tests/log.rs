//! What is written is read back: groups, segments, restarts, readers beside the writer, pruning.

mod common;

use base::Position;
use common::*;
use env::faulty_disk::Op;
use proptest::prelude::*;
use std::sync::Arc;
use wal::{Commit, Error, LogPoint, LogReader, LogWriter};

#[test]
fn groups_come_back_as_written() {
    let (_, disk) = mem();
    let (dir, _, recovered) = recover(disk.clone()).unwrap();
    assert!(dir.created() && recovered.last == Position::ZERO && recovered.cut.is_none());
    let mut log = writer(&dir, &recovered).unwrap();
    log.append_group(&[commit(1, 10), commit(2, 20)], at(0))
        .unwrap();
    log.append_group(&[commit(5, 0)], at(2)).unwrap();
    assert_eq!((log.last(), log.synced()), (at(5), Position::ZERO));
    log.sync().unwrap();
    assert_eq!(log.synced(), at(5));
    drop((log, dir));

    let (dir, memory, recovered) = recover(disk).unwrap();
    let groups = memory.groups.into_inner();
    assert!(!dir.created());
    assert_eq!(
        (recovered.last, recovered.groups, recovered.commits),
        (at(5), 2, 3)
    );
    assert_eq!(recovered.published, at(2));
    let header = groups[0].header();
    assert_eq!(
        (header.first, header.last, header.count, header.term),
        (at(1), at(2), 2, 1)
    );
    assert_eq!(groups[0].heads(), b"head of 1;head of 2;");
    assert_eq!(
        groups[0].data(),
        [commit(1, 10).data, commit(2, 20).data].concat()
    );
    assert_eq!(groups[1].data(), b"data of 5 ");
}

#[test]
fn large_segments_are_written_in_whole_pages() {
    let (_, disk) = mem();
    let mut options = small();
    options.log.segment_size = 1 << 20;
    let env = env_on(disk.clone());
    let dir = wal::DataDir::open(&env, &root(), options.clone()).unwrap();
    let recovered = wal::recover(&dir, &Memory::default(), 1, &wal::Progress::default()).unwrap();
    let mut log = writer(&dir, &recovered).unwrap();
    log.append_group(&[commit(1, 10)], at(0)).unwrap();
    let path = segment_path(&dir, 0);
    let file = disk.open(&path, env::OpenMode::Write).unwrap();
    file.write_all_at(&[0xAA; 9000], 1000).unwrap();
    // The rest of the page is written, too, and no more.
    let second = log.append_group(&[commit(2, 10)], at(1)).unwrap();
    let end = (second.at.offset + second.bytes) as usize;
    let content = disk.read(&path).unwrap();
    assert!(end < 1000 && content[end..4096].iter().all(|b| *b == 0));
    assert!(content[4096..10_000].iter().all(|b| *b == 0xAA));
    let long = log.append_group(&[commit(3, 5000)], at(2)).unwrap();
    assert_eq!(long.at.offset as usize, end, "groups stand side by side");
    log.sync().unwrap();
    drop((log, dir));
    let dir = wal::DataDir::open(&env, &root(), options).unwrap();
    let memory = Memory::default();
    let recovered = wal::recover(&dir, &memory, 1, &wal::Progress::default()).unwrap();
    assert_eq!((recovered.last, recovered.groups), (at(3), 3));
}

#[test]
fn a_group_that_does_not_fit_begins_a_segment_and_a_huge_one_gets_its_own() {
    let (_, disk) = mem();
    let (dir, _, recovered) = recover(disk.clone()).unwrap();
    let mut log = writer(&dir, &recovered).unwrap();
    for (n, size) in [(1, 1500), (2, 1500), (3, 1500), (4, 50_000), (5, 3500)] {
        log.append_group(&[commit(n, size)], at(0)).unwrap();
    }
    log.sync().unwrap();
    let firsts: Vec<u32> = dir
        .log()
        .list()
        .unwrap()
        .iter()
        .map(|s| s.first.order())
        .collect();
    assert_eq!(firsts, [1, 3, 4, 5]);
    let (groups, _) = read_all(&dir, Position::ZERO).unwrap();
    assert_eq!(lasts(&groups), [1, 2, 3, 4, 5]);
    assert_eq!(groups[3].data(), commit(4, 50_000).data);
    // From the middle: only what has a later commit.
    for from in 1..=5 {
        let (groups, reader) = read_all(&dir, at(from)).unwrap();
        assert_eq!(lasts(&groups), (from + 1..=5).collect::<Vec<_>>());
        assert_eq!(reader.end().last, at(5));
    }
}

/// A group that needs a segment of its own size takes no spare: it takes their room.
#[test]
fn a_huge_group_on_a_full_disk_takes_the_room_of_the_spares() {
    let (mem, _) = mem();
    let faulty = faulty(&mem);
    let (dir, _, recovered) = recover(Arc::new(faulty.clone())).unwrap();
    let mut log = writer(&dir, &recovered).unwrap();
    log.append_group(&[commit(1, 100)], at(0)).unwrap();
    log.sync().unwrap();
    assert!(dir.log().prepare_spare(&|| ()).unwrap());
    faulty.set_room(Some(1000));
    let disk = faulty.clone();
    faulty.refuse(move |op, path| {
        let name = path.file_name().unwrap_or_default();
        if op == Op::Remove && name.to_string_lossy().starts_with("spare-") {
            disk.set_room(None);
        }
        false
    });
    log.append_group(&[commit(2, 20_000)], at(1)).unwrap();
    log.sync().unwrap();
    assert_eq!(dir.log().spares(), 0);
    let groups = read_all(&dir, Position::ZERO).unwrap().0;
    assert_eq!(lasts(&groups), [1, 2]);
}

#[test]
fn a_reader_beside_the_writer_sees_what_is_synced_and_no_more() {
    let (_, disk) = mem();
    let (dir, _, recovered) = recover(disk).unwrap();
    let mut log = writer(&dir, &recovered).unwrap();
    let nothing = LogPoint {
        segment: 0,
        offset: 0,
    };
    let mut reader =
        LogReader::follow(dir.log().clone(), dir.cluster(), Position::ZERO, nothing).unwrap();
    assert_eq!(reader.next_group().unwrap(), None);
    let mut seen = Vec::new();
    for n in 1..=20 {
        log.append_group(&[commit(n, 900)], at(n - 1)).unwrap();
        if n % 3 == 0 {
            log.sync().unwrap();
        }
        // Rolling to another segment syncs too.
        reader.raise_limit(log.synced_point().unwrap());
        while let Some(group) = reader.next_group().unwrap() {
            seen.push(group.header().last.order());
        }
        assert!(
            seen.last().is_none_or(|last| at(*last) <= log.synced()),
            "{seen:?} at {n}"
        );
    }
    log.sync().unwrap();
    reader.raise_limit(log.synced_point().unwrap());
    while let Some(group) = reader.next_group().unwrap() {
        seen.push(group.header().last.order());
    }
    assert_eq!(seen, (1..=20).collect::<Vec<_>>());
}

#[test]
fn a_shipped_group_is_the_same_in_the_other_log() {
    let (_, disk) = mem();
    let (dir, _, recovered) = recover(disk).unwrap();
    let mut log = writer(&dir, &recovered).unwrap();
    log.set_term(3);
    log.append_group(&[commit(1, 100), commit(2, 7)], at(0))
        .unwrap();
    log.append_group(&[commit(3, 9)], at(1)).unwrap();
    log.sync().unwrap();
    let (groups, _) = read_all(&dir, Position::ZERO).unwrap();

    let (_, other_disk) = mem();
    let (other, _, recovered) = recover(other_disk).unwrap();
    let mut copy = writer(&other, &recovered).unwrap();
    for group in &groups {
        let shipped = wal::Group::from_bytes(group.as_bytes().to_vec()).unwrap();
        copy.append_shipped(&shipped).unwrap();
    }
    copy.sync().unwrap();
    let (copied, _) = read_all(&other, Position::ZERO).unwrap();
    for (a, b) in groups.iter().zip(&copied) {
        assert_eq!((a.heads(), a.data()), (b.heads(), b.data()));
        assert_eq!(
            (a.header().term, a.header().published),
            (b.header().term, b.header().published)
        );
    }
    assert_eq!(copied.len(), 2);
}

#[test]
fn a_log_whose_first_group_a_crash_took_begins_behind_the_checkpoint() {
    let (_, disk) = mem();
    let (dir, _, recovered) = recover(disk).unwrap();
    let mut log = writer(&dir, &recovered).unwrap();
    log.append_group(&[commit(1, 10), commit(2, 10), commit(3, 10)], at(0))
        .unwrap();
    log.sync().unwrap();
    let (groups, _) = read_all(&dir, Position::ZERO).unwrap();

    // A copy at a position in the middle of that group, which comes whole.
    let (_, other_disk) = mem();
    let (other, _, _) = recover(other_disk.clone()).unwrap();
    other
        .begin_checkpoint(at(2))
        .unwrap()
        .finish(at(2))
        .unwrap();
    drop(other);
    let (other, _, recovered) = recover(other_disk.clone()).unwrap();
    let mut copy = writer(&other, &recovered).unwrap();
    copy.append_shipped(&groups[0]).unwrap();
    let path = segment_path(&other, 0);
    drop((copy, other));
    let file = other_disk.open(&path, env::OpenMode::Write).unwrap();
    let size = file.len().unwrap();
    file.zero_fill(wal::segment::SEGMENT_HEADER, size).unwrap();

    let (other, _, recovered) = recover(other_disk.clone()).unwrap();
    assert_eq!((recovered.last, recovered.end.written), (at(2), at(2)));
    // The group comes again.
    let mut copy = writer(&other, &recovered).unwrap();
    copy.append_shipped(&groups[0]).unwrap();
    copy.sync().unwrap();
    drop((copy, other));
    let (_, memory, recovered) = recover(other_disk).unwrap();
    assert_eq!((recovered.last, recovered.end.written), (at(3), at(3)));
    assert_eq!(memory.groups.into_inner().len(), 1);
}

#[test]
fn pruning_keeps_what_the_checkpoint_needs_and_recycles_the_rest() {
    let (_, disk) = mem();
    let (dir, _, recovered) = recover(disk.clone()).unwrap();
    let mut log = writer(&dir, &recovered).unwrap();
    for n in 1..=10 {
        log.append_group(&[commit(n, 1800)], at(0)).unwrap();
    }
    log.sync().unwrap();
    assert_eq!(dir.log().list().unwrap().len(), 5, "two groups a segment");
    assert_eq!(
        dir.prune(Position::MAX).unwrap(),
        0,
        "without a checkpoint everything is needed"
    );
    dir.begin_checkpoint(at(7)).unwrap().finish(at(9)).unwrap();
    assert_eq!(
        dir.prune(at(4)).unwrap(),
        2,
        "a replica still needs what is after 4"
    );
    assert_eq!(dir.prune(Position::MAX).unwrap(), 1);
    assert_eq!(dir.log().spares(), 1);
    let missing = LogReader::open(dir.log().clone(), dir.cluster(), at(3)).unwrap_err();
    assert!(
        matches!(missing, Error::Missing { wanted, oldest } if wanted == at(3) && oldest == at(6)),
        "{missing}"
    );
    assert_eq!(lasts(&read_all(&dir, at(7)).unwrap().0), [8, 9, 10]);

    // The recycled file becomes the next segment; what it held before is not seen.
    for n in 11..=13 {
        log.append_group(&[commit(n, 1800)], at(10)).unwrap();
        log.sync().unwrap();
        let (groups, reader) = read_all(&dir, at(7)).unwrap();
        assert_eq!(lasts(&groups), (8..=n).collect::<Vec<_>>());
        assert_eq!(reader.cut(), None);
    }
    assert_eq!(dir.log().spares(), 0);
    assert!(dir.log().prepare_spare(&|| ()).unwrap() && !dir.log().prepare_spare(&|| ()).unwrap());
    drop((log, dir));

    let (dir, _, recovered) = recover(disk).unwrap();
    assert_eq!(
        (recovered.last, recovered.groups, dir.log().spares()),
        (at(13), 6, 1)
    );
    assert_eq!(recovered.cut, None);
}

#[test]
fn a_reader_whose_segment_was_pruned_is_told_so() {
    let (_, disk) = mem();
    let (dir, _, recovered) = recover(disk).unwrap();
    let mut log = writer(&dir, &recovered).unwrap();
    for n in 1..=8 {
        log.append_group(&[commit(n, 1800)], at(0)).unwrap();
    }
    log.sync().unwrap();
    let limit = log.synced_point().unwrap();
    let mut reader =
        LogReader::follow(dir.log().clone(), dir.cluster(), Position::ZERO, limit).unwrap();
    reader.next_group().unwrap().unwrap();
    dir.begin_checkpoint(at(8)).unwrap().finish(at(8)).unwrap();
    dir.prune(Position::MAX).unwrap();
    for n in 9..=12 {
        // Writes over the recycled file that the reader has open.
        log.append_group(&[commit(n, 1800)], at(0)).unwrap();
    }
    log.sync().unwrap();
    reader.raise_limit(log.synced_point().unwrap());
    let outcome = loop {
        match reader.next_group() {
            Ok(Some(group)) => assert!(group.header().last <= at(2)),
            Ok(None) => panic!("the reader must not think that it is done"),
            Err(error) => break error,
        }
    };
    assert!(matches!(outcome, Error::Missing { .. }), "{outcome}");
}

/// The seam to the bytes inside: commits are read off a group's two parts one by one.
#[test]
fn records_are_read_off_a_group() {
    use base::record::{Commit as Records, CommitBuilder, RecordKind};
    let (_, disk) = mem();
    let (dir, _, recovered) = recover(disk).unwrap();
    let mut log = writer(&dir, &recovered).unwrap();
    let build = |n: u32, keys: &[&str]| {
        let mut builder = CommitBuilder::new();
        for key in keys {
            builder.push(RecordKind::Put, 16384, key.as_bytes(), b"row");
        }
        let (heads, data) = builder.finish(at(n), 7);
        Commit {
            position: at(n),
            heads,
            data,
        }
    };
    log.append_group(
        &[build(1, &["a", "b"]), build(2, &[]), build(4, &["c"])],
        at(0),
    )
    .unwrap();
    log.sync().unwrap();
    let (groups, _) = read_all(&dir, Position::ZERO).unwrap();
    let (mut heads, mut data) = (groups[0].heads(), groups[0].data());
    let mut seen = Vec::new();
    while !heads.is_empty() {
        let commit = Records::take(&mut heads, &mut data).unwrap();
        seen.push((commit.position, commit.records));
    }
    assert!(data.is_empty());
    assert_eq!(seen, [(at(1), 2), (at(2), 0), (at(4), 1)]);
}

#[test]
fn a_commit_above_the_limit_is_refused_by_name() {
    assert!(LogWriter::check_size(100, 1000).is_ok());
    let error = LogWriter::check_size(1 << 29, 1 << 29).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }));
    assert_eq!(base::Error::from(error).code().code(), "54000");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Any commits in any groups, synced or not, with restarts between, come back in order and whole.
    #[test]
    fn any_log_comes_back(
        groups in prop::collection::vec(
            (prop::collection::vec((1u32..50, prop::collection::vec(any::<u8>(), 0..60),
                                    prop::collection::vec(any::<u8>(), 0..900)), 1..5), any::<bool>(), 0u8..8),
            1..30)
    ) {
        let (_, disk) = mem();
        let (mut dir, _, recovered) = recover(disk.clone()).unwrap();
        let mut log = writer(&dir, &recovered).unwrap();
        let mut position = 0;
        let mut written: Vec<Vec<Commit>> = Vec::new();
        for (commits, sync, restart) in groups {
            let group: Vec<Commit> = commits.into_iter().map(|(step, heads, data)| {
                position += step;
                Commit { position: at(position), heads, data }
            }).collect();
            log.append_group(&group, at(0)).unwrap();
            written.push(group);
            if sync {
                log.sync().unwrap();
            }
            if restart == 0 {
                drop((log, dir));
                let (again, _, recovered) = recover(disk.clone()).unwrap();
                prop_assert_eq!(recovered.last, at(position));
                prop_assert_eq!(&recovered.cut, &None);
                dir = again;
                log = writer(&dir, &recovered).unwrap();
            }
        }
        let (read, _) = read_all(&dir, Position::ZERO).unwrap();
        prop_assert_eq!(read.len(), written.len());
        for (group, commits) in read.iter().zip(&written) {
            let heads: Vec<u8> = commits.iter().flat_map(|c| c.heads.clone()).collect();
            let data: Vec<u8> = commits.iter().flat_map(|c| c.data.clone()).collect();
            prop_assert_eq!(group.heads(), heads);
            prop_assert_eq!(group.data(), data);
            prop_assert_eq!(group.header().first, commits[0].position);
            prop_assert_eq!(group.header().count as usize, commits.len());
        }
    }
}
