//! What contended transactions do for others (`txn::contention`): giving way, intents, and the circles of both.

use super::*;

#[test]
fn a_commit_gives_way_to_who_has_read_what_it_overwrites() {
    let (_dir, node, h) = with_rows(4);

    let mut reader = contended(&node);
    reader.begin_statement().unwrap();
    all(&mut reader, &h, Access::Primary, Direction::Forward);
    let mut writer = begin(&node, Isolation::Serializable, true);
    assert!(writer.readers_in_the_way().is_empty());
    writer.update(&h, &key(2), &row(2, 0)).unwrap();
    let readers = writer.readers_in_the_way();
    assert_eq!(readers, [reader.id()]);
    let end = writer.wait_for_end(readers[0]).expect("it runs");
    // The reader wants a row of the writer's: a circle, which is found at once.
    let e = reader.update(&h, &key(2), &row(2, 5)).unwrap_err();
    assert_eq!(
        e.error().expect("an error").code(),
        SqlState::DEADLOCK_DETECTED
    );
    reader.rollback_statement();
    drop(reader);
    futures::executor::block_on(end);
    assert!(writer.readers_in_the_way().is_empty());
    node.commit(writer).unwrap();
}

/// `updater` waits for `committer`, who is courteous to `reader`, who is courteous to `updater`: that opens again by itself.
#[test]
fn a_circle_of_courtesies_and_one_row_stops_nobody() {
    let (_dir, node, h) = with_rows(4);
    let mut updater = about_to_change(&node, &h, 0);
    let mut reader = contended(&node);
    reader.begin_statement().unwrap();
    value(&mut reader, &h, 1);
    reader.end_statement().unwrap();
    reader.begin_statement().unwrap();
    value(&mut reader, &h, 0);
    let read = reader.writer_in_the_way().expect("the updater");
    reader.rollback_statement();
    let mut committer = begin(&node, Isolation::Serializable, true);
    for id in [1, 2] {
        committer.update(&h, &key(id), &row(id, 60)).unwrap();
    }
    assert_eq!(committer.readers_in_the_way(), [reader.id()]);
    let commit = committer.wait_for_end(reader.id()).expect("it runs");
    let e = updater.update(&h, &key(2), &row(2, 50)).unwrap_err();
    assert!(matches!(e, txn::Stop::Blocked));
    // No courtesy closes a circle on top of it.
    assert!(committer.wait_for_end(updater.id()).is_none());

    // The reader's patience ends.
    drop(read);
    reader.stop_waiting();
    drop(reader);
    futures::executor::block_on(commit);
    node.commit(committer).unwrap();
    futures::executor::block_on(updater.take_wait().expect("it waits"));
}

/// `updater` waits for `committer`, who is courteous to `reader`, who waits for a row of the updater's: that opens again by itself, too.
#[test]
fn a_circle_of_two_rows_and_a_courtesy_stops_nobody() {
    let (_dir, node, h) = with_rows(4);
    let mut updater = about_to_change(&node, &h, 0);
    let mut reader = contended(&node);
    reader.begin_statement().unwrap();
    value(&mut reader, &h, 1);
    let e = reader.update(&h, &key(0), &row(0, 70)).unwrap_err();
    assert!(matches!(e, txn::Stop::Blocked));
    let mut committer = begin(&node, Isolation::Serializable, true);
    for id in [1, 2] {
        committer.update(&h, &key(id), &row(id, 60)).unwrap();
    }
    assert_eq!(committer.readers_in_the_way(), [reader.id()]);
    let commit = committer.wait_for_end(reader.id()).expect("it runs");
    let e = updater.update(&h, &key(2), &row(2, 50)).unwrap_err();
    assert!(matches!(e, txn::Stop::Blocked));

    // The committer's patience ends.
    drop(commit);
    committer.stop_waiting();
    node.commit(committer).unwrap();
    futures::executor::block_on(updater.take_wait().expect("it waits"));
}

#[test]
fn a_commit_gives_way_only_for_the_columns_that_were_read() {
    let (_dir, node, h) = with_rows(4);
    // (the columns that are read of all rows, whether who changes column 1 of a row, deletes one, inserts one finds the reader in his way)
    for (columns, in_the_way) in [
        (&[0u16, 2][..], [false, true, true]),
        (&[0, 1], [true, true, true]),
    ] {
        let mut reader = contended(&node);
        reader.begin_statement().unwrap();
        let mut scan = Scan::new(Access::Primary, base::KeyRange::all(), Direction::Forward)
            .of_columns(columns);
        while reader.scan(&h, &mut scan, 2, &mut |_, _| Ok(())).unwrap() {}
        let writers: [fn(&mut Txn, &TableHandle); 3] = [
            |t, h| t.update(h, &key(1), &row(1, 11)).map(drop).unwrap(),
            |t, h| t.delete(h, &key(2)).map(drop).unwrap(),
            |t, h| t.insert(h, &row(9, 10)).map(drop).unwrap(),
        ];
        for (write, expected) in writers.iter().zip(in_the_way) {
            let mut writer = begin(&node, Isolation::Serializable, true);
            write(&mut writer, &h);
            let found = !writer.readers_in_the_way().is_empty();
            assert_eq!(found, expected, "{columns:?}");
        }
    }
}

/// A contended transaction that has changed the value of one row, in a statement that is over.
fn about_to_change(node: &Node, h: &TableHandle, id: i64) -> Txn {
    let mut t = contended(node);
    t.begin_statement().unwrap();
    t.update(h, &key(id), &row(id, 50)).unwrap();
    t.end_statement().unwrap();
    t.begin_statement().unwrap();
    t
}

fn read_columns(t: &mut Txn, h: &TableHandle, columns: &[u16]) {
    let mut scan =
        Scan::new(Access::Primary, base::KeyRange::all(), Direction::Forward).of_columns(columns);
    while t.scan(h, &mut scan, 2, &mut |_, _| Ok(())).unwrap() {}
}

#[test]
fn a_read_waits_for_who_is_about_to_change_what_it_read() {
    let (_dir, node, h) = with_rows(4);

    // (how the writer ends, what the reader finds after it)
    type End = fn(&Node, Txn);
    let ends: [(End, i64); 2] = [
        (
            |n, t| {
                n.commit(t).unwrap();
            },
            50,
        ),
        (|_, t| drop(t), 10),
    ];
    for (end, found) in ends {
        let writer = about_to_change(&node, &h, 2);
        let mut reader = contended(&node);
        reader.begin_statement().unwrap();
        assert_eq!(value(&mut reader, &h, 2), Some(10));
        let wait = reader.writer_in_the_way().expect("it is there");
        reader.rollback_statement();
        end(&node, writer);
        futures::executor::block_on(wait);
        reader.begin_statement().unwrap();
        assert_eq!(value(&mut reader, &h, 2), Some(found));
        assert!(reader.writer_in_the_way().is_none());
        // What the undone run has read is in nobody's way, and what it read since is what is there.
        reader.update(&h, &key(3), &row(3, found)).unwrap();
        reader.end_statement().unwrap();
        node.commit(reader).unwrap();
        change(&node, &h, 2, 10);
    }

    // Who has not lost waits for nobody, nor does a reader of other columns or rows.
    let writer = about_to_change(&node, &h, 2);
    let mut other = begin(&node, Isolation::Serializable, true);
    assert_eq!(value(&mut other, &h, 2), Some(10));
    assert!(other.writer_in_the_way().is_none());
    for (columns, waits) in [(&[0u16, 2][..], false), (&[1][..], true)] {
        let mut reader = contended(&node);
        reader.begin_statement().unwrap();
        value(&mut reader, &h, 1);
        read_columns(&mut reader, &h, columns);
        assert_eq!(reader.writer_in_the_way().is_some(), waits, "{columns:?}");
    }
    // A wait that was too long was the last one, and the statement is what it would have been.
    let mut reader = contended(&node);
    reader.begin_statement().unwrap();
    value(&mut reader, &h, 2);
    let wait = reader.writer_in_the_way().expect("it is there");
    reader.rollback_statement();
    drop(wait);
    reader.stop_waiting();
    reader.no_more_courtesy();
    reader.begin_statement().unwrap();
    assert_eq!(value(&mut reader, &h, 2), Some(10));
    assert!(reader.writer_in_the_way().is_none());
    drop(writer);
}

#[test]
fn a_read_does_not_wait_where_it_comes_before_the_writer_or_could_stop_it() {
    let (_dir, node, h) = with_rows(4);

    // What an earlier statement has read is changed, too: the reader comes first.
    let mut reader = contended(&node);
    reader.begin_statement().unwrap();
    value(&mut reader, &h, 1);
    reader.end_statement().unwrap();
    let mut writer = about_to_change(&node, &h, 1);
    writer.update(&h, &key(2), &row(2, 50)).unwrap();
    writer.end_statement().unwrap();
    reader.begin_statement().unwrap();
    value(&mut reader, &h, 2);
    assert!(reader.writer_in_the_way().is_none());
    drop((reader, writer));

    // The writer waits for the reader already: a circle.
    let mut writer = about_to_change(&node, &h, 2);
    let mut reader = contended(&node);
    reader.begin_statement().unwrap();
    let wait = writer.wait_for_end(reader.id()).expect("it runs");
    value(&mut reader, &h, 2);
    assert!(reader.writer_in_the_way().is_none());
    drop(reader);
    futures::executor::block_on(wait);
    drop(writer);

    // The reader has locks that the writer may come to want.
    let writer = about_to_change(&node, &h, 2);
    let mut reader = contended(&node);
    reader.begin_statement().unwrap();
    let lock = |t: &mut Txn| t.lock_row(&h, &key(0), LockMode::Update, WaitPolicy::Wait);
    value(&mut reader, &h, 0);
    assert!(lock(&mut reader).unwrap());
    reader.end_statement().unwrap();
    reader.begin_statement().unwrap();
    value(&mut reader, &h, 2);
    assert!(reader.writer_in_the_way().is_none());
    drop(writer);
}

#[test]
fn a_long_statement_is_not_undone_for_a_courtesy() {
    for (rows, waits) in [(100, true), (1200, false)] {
        let (_dir, node, h) = with_rows(rows);
        let _writer = about_to_change(&node, &h, 2);
        let mut reader = contended(&node);
        reader.begin_statement().unwrap();
        read_columns(&mut reader, &h, &[1]);
        assert_eq!(reader.writer_in_the_way().is_some(), waits, "{rows} rows");
    }
}

#[test]
fn a_commit_gives_way_however_much_it_changes_that_nobody_reads() {
    let (_dir, node, h) = with_rows(4);
    let mut busy = sample(20100);
    busy.name = "busy".into();
    define(&node, busy);
    let (busy, h) = (handle(&node, 20100), handle(&node, h.table.def.id));
    let mut reader = contended(&node);
    reader.begin_statement().unwrap();
    value(&mut reader, &h, 3);
    let mut writer = begin(&node, Isolation::Serializable, true);
    for id in 0..2000 {
        writer.insert(&busy, &row(id, 1)).unwrap();
    }
    assert!(writer.readers_in_the_way().is_empty());
    writer.update(&h, &key(3), &row(3, 0)).unwrap();
    assert_eq!(writer.readers_in_the_way(), [reader.id()]);
}
