//! Sessions whose nodes refuse: what is run again elsewhere, what the client is told, and when the session leaves.

use super::*;

#[test]
fn a_write_at_a_node_that_leads_no_more_goes_to_the_primary() {
    let mut s = S::new();
    s.extended("", "INSERT INTO t VALUES (1)");
    for n in 1..=10 {
        for k in *b"12n" {
            assert_eq!(s.hear(k, b"").0, Heard::Nothing);
        }
        assert_eq!(s.refuse("25006"), Heard::Nothing);
        let (heard, out) = s.hear(b'Z', b"I");
        let Heard::Elsewhere {
            bytes,
            primary,
            tries,
            opening,
        } = heard
        else {
            panic!("{heard:?}")
        };
        assert!(bytes[0] == b'P' && out.is_empty() && primary);
        assert_eq!((tries, opening), (n, vec![]));
    }
    // No node takes it: now the client is told.
    assert_eq!(s.hear(b'1', b"").0, Heard::Nothing);
    let e = error("ERROR", "25006", "no");
    let (heard, out) = s.hear(b'E', &e[5..]);
    assert_eq!((heard, out[0]), (Heard::Forward, b'1'));
    assert_eq!(s.hear(b'Z', b"I").0, Heard::Forward);
    // A node that cannot serve now: others are tried.
    s.q("SELECT 1");
    for tries in 1..=3 {
        assert_eq!(s.refuse("57P03"), Heard::Nothing);
        let elsewhere = Heard::Elsewhere {
            bytes: whole(b'Q', b"SELECT 1\0"),
            primary: false,
            tries,
            opening: vec![],
        };
        assert_eq!(s.hear(b'Z', b"I").0, elsewhere);
    }
    s.got("T", "SELECT 1", b'I');
    // A session that asked for it is told at once.
    s.q("SET default_transaction_read_only = on");
    s.hear(b'S', b"default_transaction_read_only\0on\0");
    s.hear(b'Z', b"I");
    s.q("INSERT INTO t VALUES (1)");
    assert_eq!(s.refuse("25006"), Heard::Forward);
}

#[test]
fn a_refusal_is_the_clients_when_another_cycle_is_at_the_node() {
    for (one, two) in [
        ("INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)"),
        ("SELECT 1", "SELECT 2"),
    ] {
        let mut s = S::new();
        s.q(one);
        assert_eq!(s.refuse("57P03"), Heard::Nothing);
        // Between the error and ReadyForQuery.
        s.q(two);
        let (heard, out) = s.hear(b'Z', b"I");
        assert_eq!((heard, code(&out).as_str()), (Heard::Forward, "57P03"));
        assert!(out.ends_with(b"Z\0\0\0\x05I"));
        // The second one is answered as if there had been no first.
        let (heard, out) = s.hear(b'C', b"DONE\0");
        assert_eq!((heard, out[0]), (Heard::Forward, b'C'));
        s.hear(b'Z', b"I");
        assert!(s.0.is_between());
    }
}

#[test]
fn who_waits_for_a_refusal_before_he_ends_his_cycle_gets_it() {
    for flush_first in [true, false] {
        let mut s = S::new();
        s.say(b'P', b"\0SELECT 1\0\0\0");
        let e = error("ERROR", "57P03", "no");
        let out = if flush_first {
            s.say(b'H', b"");
            s.hear(b'E', &e[5..]).1
        } else {
            assert_eq!(s.hear(b'E', &e[5..]), (Heard::Nothing, vec![]));
            let Said::Reply(out) = s.say(b'H', b"") else {
                panic!("held")
            };
            out
        };
        assert_eq!(code(&out), "57P03", "{flush_first}");
        assert_eq!(s.say(b'S', b""), Said::Forward);
        let (heard, out) = s.hear(b'Z', b"I");
        assert_eq!((heard, out), (Heard::Forward, ready(b'I')));
        assert!(s.0.is_between());
    }
}

#[test]
fn a_node_that_cannot_go_on_with_a_transaction_has_lost_it() {
    let mut s = S::new();
    s.q("BEGIN").got("", "BEGIN", b'T');
    s.q("SELECT 1").got("TD", "SELECT 1", b'T').q("SELECT 1");
    let e = error("ERROR", "57P03", "no");
    let (heard, out) = s.hear(b'E', &e[5..]);
    assert_eq!((heard, code(&out).as_str()), (Heard::Nothing, "40001"));
    assert_eq!(out.len(), e.len());
    // What comes after it is the node's word.
    s.hear(b'Z', b"E");
    s.q("SELECT 1");
    assert_eq!(s.refuse("25P02"), Heard::Forward);
}

/// One error, and ReadyForQuery.
fn refused(s: &mut S, code: &str, status: u8) -> Heard {
    assert_eq!(s.refuse(code), Heard::Nothing);
    s.hear(b'Z', &[status]).0
}

#[test]
fn a_block_that_has_shown_nothing_begins_again_elsewhere() {
    let extended: fn(&mut S, &str) = |s, sql| {
        s.say(b'P', format!("p\0{sql}\0\0\0").as_bytes());
        s.say(b'S', b"");
        s.hear(b'1', b"");
        s.hear(b'Z', &[if sql.starts_with("BEGIN") { b'I' } else { b'T' }]);
        s.say(b'B', b"\0p\0\0\0\0\0\0\0");
        s.say(b'E', b"\0\0\0\0\0");
        s.say(b'S', b"");
        let tag = sql.split(' ').next().unwrap();
        s.got("2", tag, b'T');
        s.say(b'C', b"Sp\0");
        s.say(b'S', b"");
        s.hear(b'3', b"");
        s.hear(b'Z', b"T");
    };
    let simple: fn(&mut S, &str) = |s, sql| {
        let tag = sql.split(' ').next().unwrap();
        s.q(sql).got("", tag, b'T');
    };
    for open in [extended, simple] {
        let mut s = S::new();
        open(&mut s, "BEGIN ISOLATION LEVEL SERIALIZABLE");
        open(&mut s, "SAVEPOINT a");
        s.q("UPDATE t SET a = 1");
        let Heard::Elsewhere {
            bytes,
            opening,
            primary,
            ..
        } = refused(&mut s, "25006", b'E')
        else {
            panic!("not run again")
        };
        assert_eq!(bytes, whole(b'Q', b"UPDATE t SET a = 1\0"));
        assert_eq!(
            opening,
            ["BEGIN ISOLATION LEVEL SERIALIZABLE", "SAVEPOINT a"]
        );
        assert!(primary);
        // It goes on there as if nothing had been.
        s.0.connected(&[]);
        s.got("", "UPDATE 1", b'T');
        assert_eq!(s.0.leaves(), None);
        // Now something of it is known.
        s.q("SELECT 1");
        let e = error("ERROR", "57P03", "no");
        let (heard, out) = s.hear(b'E', &e[5..]);
        assert_eq!((heard, code(&out).as_str()), (Heard::Nothing, "40001"));
    }
}

#[test]
fn a_block_that_begins_with_its_first_statement_is_sent_whole() {
    let mut s = S::new();
    s.q("BEGIN; SELECT 1");
    assert_eq!(s.hear(b'C', b"BEGIN\0"), (Heard::Nothing, vec![]));
    let Heard::Elsewhere { bytes, opening, .. } = refused(&mut s, "57P03", b'E') else {
        panic!("not run again")
    };
    assert_eq!(bytes, whole(b'Q', b"BEGIN; SELECT 1\0"));
    assert!(opening.is_empty());
    // No node takes it: the client has a block that has failed, as the node has.
    let out = s.0.refused(false, "no");
    assert_eq!(code(&out), "40001");
    assert!(out.ends_with(b"Z\0\0\0\x05E"));
    s.q("ROLLBACK").got("", "ROLLBACK", b'I');
    assert!(s.0.is_between() && s.0.leaves().is_none());
}

#[test]
fn a_block_that_only_reads_is_told_that_it_may_not_write() {
    for begin in ["BEGIN READ ONLY", "START TRANSACTION READ ONLY"] {
        let mut s = S::new();
        s.q(begin).got("", "BEGIN", b'T').q("DELETE FROM t");
        assert_eq!(s.refuse("25006"), Heard::Forward);
        s.hear(b'Z', b"E");
        s.q("ROLLBACK").got("", "ROLLBACK", b'I');
        assert_eq!(s.0.leaves(), None);
    }
    let mut s = S::new();
    s.q("BEGIN; SET TRANSACTION READ ONLY")
        .got("", "BEGIN", b'T');
    s.q("DELETE FROM t");
    assert_eq!(s.refuse("25006"), Heard::Forward);
}

#[test]
fn who_knows_of_a_refusal_leaves_when_nothing_is_under_way() {
    let mut s = S::new();
    s.q("SELECT 1").q("SELECT 2");
    let e = error("ERROR", "57P03", "no");
    assert_eq!(s.hear(b'E', &e[5..]).0, Heard::Forward);
    // One is under way, and no other is begun.
    assert!(s.0.drains() && !s.0.is_between());
    s.hear(b'Z', b"I");
    s.got("T", "SELECT 1", b'I');
    assert!(s.0.drains() && s.0.is_between());
    assert_eq!(s.0.leaves(), Some(false));
    s.0.connected(&[]);
    assert!(!s.0.drains());

    // A block that has failed is ended first.
    s.q("BEGIN; SELECT 1").got("CTD", "SELECT 1", b'T');
    s.q("SELECT 2");
    s.hear(b'E', &e[5..]);
    s.hear(b'Z', b"E");
    assert!(!s.0.drains());
    s.q("ROLLBACK").got("", "ROLLBACK", b'I');
    assert!(s.0.drains());
}

/// libpq of PostgreSQL 18 sends it behind each pipeline.
#[test]
fn a_flush_behind_sync_begins_nothing() {
    let mut s = S::new();
    s.extended("", "SELECT 1");
    assert_eq!(s.say(b'H', b""), Said::Nothing);
    assert!(matches!(
        refused(&mut s, "57P03", b'I'),
        Heard::Elsewhere { .. }
    ));
    s.0.connected(&[]);
    s.got("12T", "SELECT 1", b'I');
    assert_eq!(s.say(b'H', b""), Said::Nothing);
    assert!(s.0.is_between());
}

#[test]
fn who_waits_for_the_same_again_may_be_taken_away() {
    // In a block, what is sent, with the leave of a transaction, without.
    for (block, sql, with, without) in [
        (false, "SELECT 1", true, true),
        (false, "INSERT INTO t VALUES (1)", false, false),
        (true, "SELECT 1", true, false),
        (true, "INSERT INTO t VALUES (1)", true, false),
        (true, "COMMIT", false, false),
    ] {
        for (leave, expected) in [(true, with), (false, without)] {
            let mut s = S::new();
            if block {
                s.q("BEGIN; SELECT 1").got("CTD", "SELECT 1", b'T');
            }
            assert!(!s.0.waits(leave), "for nothing");
            s.q(sql);
            assert_eq!(s.0.waits(leave), expected, "{sql} {block} {leave}");
        }
    }
    // Something else each time, or some of it has come.
    let mut s = S::new();
    s.q("SELECT 1");
    assert!(!s.0.waits(true));
    s.got("TD", "SELECT 1", b'I').q("SELECT 2");
    assert!(!s.0.waits(true));
    s.hear(b'T', b"\0\0");
    s.hear(b'D', b"\0\0");
    assert!(!s.0.waits(true));
}

/// A client that pipelines counts the answers.
#[test]
fn a_lost_node_is_one_error_for_each_cycle_and_none_for_a_sync_alone() {
    let errors = |r: &[u8]| r.windows(5).filter(|w| *w == b"40001").count();
    // In a block, with nothing but Sync under way: the next statement is told.
    let mut s = S::new();
    s.q("BEGIN; SELECT 1").got("CTD", "SELECT 1", b'T');
    s.say(b'S', b"");
    let told = Loss::Told {
        reply: ready(b'T'),
        failed_block: true,
    };
    assert_eq!(s.0.lost(false), told);
    assert!(matches!(s.say(b'Q', b"SELECT 1\0"), Said::Reply(r) if errors(&r) == 1));

    // Behind a statement.
    let mut s = S::new();
    s.q("BEGIN; SELECT 1").got("CTD", "SELECT 1", b'T');
    s.q("SELECT 2");
    s.say(b'S', b"");
    let Loss::Told { reply, .. } = s.0.lost(false) else {
        panic!("told")
    };
    assert_eq!(errors(&reply), 1);
    assert_eq!(
        reply.windows(6).filter(|w| *w == b"Z\0\0\0\x05E").count(),
        2
    );

    // One that has failed already, and is not ended.
    let mut s = S::new();
    s.q("BEGIN; SELECT 1").got("CTD", "SELECT 1", b'T');
    s.say(b'P', b"\0nonsense\0\0\0");
    assert_eq!(s.refuse("42601"), Heard::Forward);
    let Loss::Told { reply, .. } = s.0.lost(false) else {
        panic!("told")
    };
    assert!(reply.is_empty());
    assert_eq!(s.say(b'S', b""), Said::Reply(ready(b'E')));
}
