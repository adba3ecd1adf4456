//! What is left of a transaction that went with its node, and what a client is told last.

use super::*;

fn set(s: &mut S, sql: &str, name: &str, value: &str, status: u8) {
    s.q(sql);
    s.hear(b'S', format!("{name}\0{value}\0").as_bytes());
    s.got("", "SET", status);
}

fn settings(s: &S) -> Vec<(String, String)> {
    s.0.carry().settings
}

#[test]
fn what_a_lost_transaction_has_set_is_not_carried() {
    let old = vec![("lock_timeout".into(), "5s".into())];
    let mut s = S::new();
    set(
        &mut s,
        "SET lock_timeout = '5s'",
        "lock_timeout",
        "5s",
        b'I',
    );
    s.q("BEGIN").got("", "BEGIN", b'T');
    for (sql, name, value) in [
        ("SET LOCAL lock_timeout = '9s'", "lock_timeout", "9s"),
        ("SET LOCAL role = 'other'", "role", "other"),
        ("SET lock_timeout = '8s'", "lock_timeout", "8s"),
    ] {
        set(&mut s, sql, name, value, b'T');
    }
    // As after ROLLBACK TO: the block goes on.
    s.q("ROLLBACK TO a").got("", "ROLLBACK", b'T');
    s.q("SELECT 1");
    assert!(matches!(s.0.lost(false), Loss::Told { .. }));
    assert_eq!(settings(&s), old);
    s.q("ROLLBACK").got("", "ROLLBACK", b'I');

    // Between two messages of the client; then what the node says at the end of the transaction holds.
    s.q("BEGIN").got("", "BEGIN", b'T');
    set(
        &mut s,
        "SET lock_timeout = '7s'",
        "lock_timeout",
        "7s",
        b'T',
    );
    s.q("COMMIT AND CHAIN").got("", "COMMIT", b'T');
    let kept = vec![("lock_timeout".into(), "7s".into())];
    set(
        &mut s,
        "SET lock_timeout = '6s'",
        "lock_timeout",
        "6s",
        b'T',
    );
    assert!(matches!(s.0.lost(false), Loss::Told { .. }));
    assert_eq!(settings(&s), kept);
    s.q("ROLLBACK").got("", "ROLLBACK", b'I');

    // What runs again sets again.
    s.q("SET lock_timeout = '4s'; SELECT 1");
    s.hear(b'S', b"lock_timeout\x004s\0");
    assert!(matches!(s.0.lost(false), Loss::Silent(_)));
    assert_eq!(settings(&s), kept);
}

/// The node is lost in a transaction while nothing is under way.
fn doomed() -> S {
    let mut s = S::new();
    for (name, sql) in [("c", "COMMIT"), ("r", "ROLLBACK")] {
        s.say(b'P', format!("{name}\0{sql}\0\0\0").as_bytes());
        s.say(b'S', b"");
        s.hear(b'1', b"");
        s.hear(b'Z', b"I");
    }
    s.q("BEGIN").got("", "BEGIN", b'T');
    s.q("SELECT 1").got("TD", "SELECT 1", b'T');
    let told = Loss::Told {
        reply: vec![],
        failed_block: true,
    };
    assert_eq!(s.0.lost(false), told);
    s
}

/// What the node says to ROLLBACK: the client gets ReadyForQuery of it.
fn rolled_back(s: &mut S) {
    assert_eq!(s.hear(b'C', b"ROLLBACK\0"), (Heard::Nothing, vec![]));
    assert_eq!(s.hear(b'Z', b"I"), (Heard::Forward, ready(b'I')));
    assert!(s.0.is_between());
}

#[test]
fn commit_of_a_lost_transaction_fails_and_ends_it() {
    let mut s = doomed();
    let Said::Ends(out) = s.say(b'Q', b"END\0") else {
        panic!("it ends")
    };
    assert_eq!(code(&out), "40001");
    rolled_back(&mut s);

    // By the extended protocol; what follows COMMIT up to Sync is skipped.
    let execute: [(u8, &[u8]); 2] = [(b'B', b"\0c\0\0\0\0\0\0\0"), (b'E', b"\0\0\0\0\0")];
    for prepared in [false, true] {
        let mut s = doomed();
        let mut said = Vec::new();
        if !prepared {
            said.push(s.say(b'P', b"c2\0COMMIT\0\0\0"));
        }
        said.extend(execute.map(|(k, b)| s.say(k, b)));
        said.push(s.say(b'P', b"\0SELECT 1\0\0\0"));
        let Said::Reply(out) = &said[0] else {
            panic!("{said:?}")
        };
        assert_eq!(code(out), "40001");
        assert!(said[1..].iter().all(|s| *s == Said::Nothing), "{said:?}");
        assert_eq!(s.say(b'S', b""), Said::Ends(vec![]));
        // That node is lost, too: the client does not hear of it.
        let told = Loss::Told {
            reply: ready(b'I'),
            failed_block: false,
        };
        assert_eq!(s.0.lost(false), told);
        assert!(s.0.is_between());
    }

    // One that is not run, or not alone, or begins the next block, leaves the transaction failed.
    let mut s = doomed();
    assert!(matches!(s.say(b'P', b"\0COMMIT\0\0\0"), Said::Reply(_)));
    assert_eq!(s.say(b'S', b""), Said::Reply(ready(b'E')));
    for sql in ["UPDATE t SET a = 1; COMMIT", "COMMIT AND CHAIN"] {
        let mut s = doomed();
        let Said::Reply(out) = s.say(b'Q', format!("{sql}\0").as_bytes()) else {
            panic!("{sql}")
        };
        assert!(out.ends_with(&ready(b'E')), "{sql}");
    }
    // ROLLBACK is no news to the client, prepared or not.
    let mut s = doomed();
    assert_eq!(s.say(b'B', b"\0r\0\0\0\0\0\0\0"), Said::Forward);
}

#[test]
fn who_is_ended_by_his_node_is_ended() {
    for code in ["57P05", "25P03", "08P01", "53200"] {
        let mut s = S::new();
        s.say(b'P', b"\0SELECT 1\0\0\0");
        s.hear(b'1', b"");
        let e = error("FATAL", code, "no");
        let (heard, out) = s.hear(b'E', &e[5..]);
        assert_eq!((heard, out), (Heard::Last, whole(b'1', b"")), "{code}");
    }
}

#[test]
fn a_read_that_ends_one_node_after_the_other_is_not_sent_to_all() {
    let mut s = S::new();
    s.q("SELECT 1");
    for _ in 0..3 {
        assert!(matches!(s.0.lost(false), Loss::Silent(_)));
    }
    // Nodes that are asked to stop do not count.
    assert!(matches!(s.0.lost(true), Loss::Silent(_)));
    let Loss::Told { reply, .. } = s.0.lost(false) else {
        panic!("it has been told")
    };
    assert_eq!(code(&reply), "40001");
}

#[test]
fn a_commit_that_a_promotion_has_lost_is_told_of_once() {
    let what = "canon.min_token 00000001/00000002 of term 3 is not in this server's history";
    let e = error("ERROR", "55000", what);
    let mut s = S::new();
    s.hear(b'S', b"canon.commit_token\x007-3-9\0");
    assert!(
        s.0.carry()
            .settings
            .iter()
            .any(|c| c.0 == "canon.min_token")
    );
    s.q("SELECT 1");
    assert_eq!(s.hear(b'E', &e[5..]).0, Heard::Forward);
    s.hear(b'Z', b"I");
    assert!(s.0.is_between() && s.0.forgets() && !s.0.forgets());
    assert!(s.0.carry().settings.is_empty());
    // What the client asks for itself it goes on asking for.
    let mut s = S::new();
    s.q("SET canon.min_token = '7-3-9'");
    s.hear(b'C', b"SET\0");
    s.hear(b'S', b"canon.min_token\x007-3-9\0");
    s.hear(b'Z', b"I");
    s.q("SELECT 1");
    assert_eq!(s.hear(b'E', &e[5..]).0, Heard::Forward);
    s.hear(b'Z', b"I");
    assert!(!s.0.forgets());
}
