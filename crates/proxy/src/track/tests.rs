//! Sessions whose nodes go at every point.

use super::*;
use protocol::message::{field, message};

mod ends;
mod refused;

fn whole(kind: u8, body: &[u8]) -> Vec<u8> {
    message(kind, body)
}

/// A session at a node, in short: `q` sends a text, `got` is what the node answers.
struct S(Track);

impl S {
    fn new() -> S {
        let mut t = Track::new(true);
        t.start();
        S(t)
    }

    fn say(&mut self, kind: u8, body: &[u8]) -> Said {
        self.0.client(kind, &whole(kind, body))
    }

    fn q(&mut self, sql: &str) -> &mut S {
        assert_eq!(self.say(b'Q', format!("{sql}\0").as_bytes()), Said::Forward);
        self
    }

    /// Parse, Bind, Describe, Execute and Sync.
    fn extended(&mut self, name: &str, sql: &str) -> &mut S {
        self.say(b'P', format!("{name}\0{sql}\0\0\0").as_bytes());
        self.say(b'B', format!("\0{name}\0\0\0\0\0\0\0").as_bytes());
        self.say(b'D', b"P\0");
        self.say(b'E', b"\0\0\0\0\0");
        assert_eq!(self.say(b'S', b""), Said::Forward);
        self
    }

    fn hear(&mut self, kind: u8, body: &[u8]) -> (Heard, Vec<u8>) {
        let mut out = Vec::new();
        let m = whole(kind, body);
        let heard = self.0.node(kind, &m, &mut out);
        if heard == Heard::Forward {
            out.extend_from_slice(&m);
        }
        (heard, out)
    }

    fn got(&mut self, kinds: &str, tag: &str, status: u8) -> &mut S {
        for k in kinds.bytes() {
            self.hear(k, b"\0\0");
        }
        self.hear(b'C', format!("{tag}\0").as_bytes());
        self.hear(b'Z', &[status]);
        self
    }

    fn refuse(&mut self, code: &str) -> Heard {
        let e = error("ERROR", code, "no");
        self.hear(b'E', &e[5..]).0
    }
}

fn code(reply: &[u8]) -> String {
    field(&reply[5..], b'C').expect("an error")
}

#[test]
fn between_transactions_nothing_is_noticed_and_everything_is_carried() {
    let mut s = S::new();
    s.q("SET lock_timeout = 5");
    s.hear(b'C', b"SET\0");
    s.hear(b'S', b"lock_timeout\x005ms\0");
    s.hear(b'Z', b"I");
    s.extended("a", "SELECT 1").got("12T", "SELECT 1", b'I');
    s.extended("b", "SELECT 2").got("12T", "SELECT 1", b'I');
    s.q("PREPARE P2 AS SELECT 3").got("", "PREPARE", b'I');
    s.say(b'C', b"Sb\0");
    s.say(b'S', b"");
    s.hear(b'3', b"");
    s.hear(b'Z', b"I");
    assert!(s.0.is_between());
    let carry = s.0.carry();
    assert_eq!(carry.settings, [("lock_timeout".into(), "5ms".into())]);
    assert_eq!(carry.parses, [whole(b'P', b"a\0SELECT 1\0\0\0")]);
    assert_eq!(carry.texts, ["PREPARE P2 AS SELECT 3"]);
    assert_eq!(s.0.lost(false), Loss::Silent(vec![]));
    s.q("DISCARD ALL").got("", "DISCARD ALL", b'I');
    assert!(s.0.carry().parses.is_empty() && s.0.carry().texts.is_empty());
}

#[test]
fn a_read_on_its_own_runs_again_elsewhere_and_a_write_does_not() {
    let mut s = S::new();
    s.q("SELECT 1");
    let again = whole(b'Q', b"SELECT 1\0");
    assert_eq!(s.0.lost(false), Loss::Silent(again));
    s.got("T", "SELECT 1", b'I');
    assert!(s.0.is_between());

    // Held acknowledgements were not seen by the client, and the statement is not carried twice.
    s.extended("x", "SELECT 2");
    let (heard, out) = s.hear(b'1', b"");
    assert_eq!((heard, out.len()), (Heard::Nothing, 0));
    let Loss::Silent(again) = s.0.lost(false) else {
        panic!("a read")
    };
    assert_eq!(again[0], b'P');
    assert!(s.0.carry().parses.is_empty());
    s.got("12T", "SELECT 1", b'I');
    assert_eq!(s.0.carry().parses.len(), 1);

    // Some of the answer is with the client: it cannot run again.
    s.q("SELECT 3");
    s.hear(b'T', b"\0\0");
    s.hear(b'D', b"\0\0");
    let Loss::Told {
        reply,
        failed_block,
    } = s.0.lost(false)
    else {
        panic!("told")
    };
    assert_eq!((code(&reply).as_str(), failed_block), ("40001", false));

    s.q("INSERT INTO t VALUES (1)");
    let Loss::Told {
        reply,
        failed_block,
    } = s.0.lost(false)
    else {
        panic!("told")
    };
    assert_eq!((code(&reply).as_str(), failed_block), ("40003", false));
    assert!(reply.ends_with(b"Z\0\0\0\x05I"));
    // Unless the node has said that it ran nothing.
    s.q("INSERT INTO t VALUES (1)");
    let detail = format!("SFATAL\0VFATAL\0C57P01\0Mx\0D{}\0\0", protocol::NOTHING_RUN);
    let ending = Heard::Ending { nothing_run: true };
    assert_eq!(s.hear(b'E', detail.as_bytes()).0, ending);
    assert!(matches!(s.0.lost(true), Loss::Silent(b) if !b.is_empty()));
}

#[test]
fn an_open_transaction_notices_one_error() {
    // While it waits for an answer.
    let mut s = S::new();
    s.q("BEGIN").got("", "BEGIN", b'T');
    s.q("UPDATE t SET a = 1");
    let Loss::Told {
        reply,
        failed_block,
    } = s.0.lost(false)
    else {
        panic!("told")
    };
    assert_eq!((code(&reply).as_str(), failed_block), ("40001", true));
    assert!(reply.ends_with(b"Z\0\0\0\x05E"));
    s.q("ROLLBACK").got("", "ROLLBACK", b'I');
    assert!(s.0.is_between());

    // While it is idle: the next statement is told, a rollback is not.
    for (next, told) in [("SELECT 1", true), ("ROLLBACK", false)] {
        let mut s = S::new();
        s.q("BEGIN").got("", "BEGIN", b'T');
        let silent = Loss::Told {
            reply: vec![],
            failed_block: true,
        };
        assert_eq!(s.0.lost(false), silent);
        match s.say(b'Q', format!("{next}\0").as_bytes()) {
            Said::Reply(r) => assert!(told && code(&r) == "40001", "{next}"),
            other => assert!(!told && other == Said::Forward, "{next}"),
        }
    }

    // In the extended protocol, up to Sync.
    let mut s = S::new();
    s.q("BEGIN").got("", "BEGIN", b'T');
    s.0.lost(false);
    assert!(matches!(s.say(b'P', b"\0SELECT 1\0\0\0"), Said::Reply(r) if r[0] == b'E'));
    assert_eq!(s.say(b'B', b"\0\0\0\0\0\0\0\0"), Said::Nothing);
    assert_eq!(s.say(b'S', b""), Said::Reply(ready(b'E')));
    assert_eq!(s.say(b'P', b"\0SELECT 1\0\0\0"), Said::Forward, "told once");
}

#[test]
fn what_runs_nothing_does_not_take_the_word_of_a_lost_transaction() {
    let mut s = S::new();
    s.q("BEGIN").got("", "BEGIN", b'T');
    s.0.lost(false);
    assert_eq!(s.say(b'S', b""), Said::Reply(ready(b'T')));
    assert_eq!(s.say(b'H', b""), Said::Nothing);
    assert_eq!(s.say(b'S', b""), Said::Reply(ready(b'T')));
    let Said::Reply(r) = s.say(b'Q', b"SELECT 1\0") else {
        panic!("not told")
    };
    assert_eq!(code(&r), "40001");
    assert!(r.ends_with(b"Z\0\0\0\x05E"));
    // Lost once more, it has failed already.
    s.0.lost(false);
    assert_eq!(s.say(b'Q', b"SELECT 1\0"), Said::Forward);
}

#[test]
fn a_commit_without_an_answer_is_unknown() {
    let mut s = S::new();
    s.q("BEGIN").got("", "BEGIN", b'T');
    s.q("COMMIT");
    let Loss::Told {
        reply,
        failed_block,
    } = s.0.lost(false)
    else {
        panic!("told")
    };
    assert_eq!((code(&reply).as_str(), failed_block), ("40003", false));
    let mut s = S::new();
    s.q("BEGIN; INSERT INTO t VALUES (1)");
    let Loss::Told {
        reply,
        failed_block,
    } = s.0.lost(false)
    else {
        panic!("told")
    };
    assert_eq!((code(&reply).as_str(), failed_block), ("40001", true));
}

/// What a client is told when its node goes while these texts have no answer, and whether a failed block is left.
fn told(block: bool, texts: &[&str]) -> (String, bool) {
    let mut s = S::new();
    if block {
        s.q("BEGIN").got("", "BEGIN", b'T');
    }
    for t in texts {
        s.q(t);
    }
    match s.0.lost(false) {
        Loss::Told {
            reply,
            failed_block,
        } => (code(&reply), failed_block),
        other => panic!("{texts:?}: {other:?}"),
    }
}

#[test]
fn nobody_is_told_to_run_again_what_may_have_committed() {
    let insert = "INSERT INTO t VALUES (1)";
    let mixed = format!("ROLLBACK; {insert}");
    let commit = format!("BEGIN; {insert}; COMMIT");
    let begun = format!("BEGIN; {insert}");
    let cases: [(bool, &[&str], (&str, bool)); 16] = [
        // Committed before the block began.
        (false, &[insert, "BEGIN"], ("40003", true)),
        (
            false,
            &["SELECT 1", insert, "BEGIN", insert],
            ("40003", true),
        ),
        (false, &[&commit, "BEGIN"], ("40003", true)),
        // The block has ended before the write.
        (true, &[&mixed], ("40003", false)),
        (true, &["ROLLBACK", insert], ("40003", false)),
        (true, &["COMMIT", "SELECT 1"], ("40003", false)),
        // The last word says whether there is one.
        (true, &["COMMIT; BEGIN"], ("40003", true)),
        (true, &["COMMIT AND CHAIN"], ("40003", true)),
        (true, &["COMMIT AND NO CHAIN"], ("40003", false)),
        (true, &["ROLLBACK; BEGIN"], ("40001", true)),
        // The block may not have begun.
        (false, &["BEGIN", insert], ("40003", true)),
        // None of these can have committed.
        (false, &[&begun], ("40001", true)),
        (true, &[insert, insert], ("40001", true)),
        (true, &[insert, "ROLLBACK"], ("40001", false)),
        (true, &["ROLLBACK", "BEGIN", "SELECT 1"], ("40001", true)),
        (
            true,
            &["SELECT 1", "ROLLBACK TO a", insert],
            ("40001", true),
        ),
    ];
    for (block, texts, expected) in cases {
        let (code, failed) = told(block, texts);
        assert_eq!((code.as_str(), failed), expected, "{block} {texts:?}");
    }
}

/// The code that a client gets when its node goes while this statement runs; empty: nothing is noticed.
fn runs(s: &mut S, name: &str) -> String {
    s.say(b'B', format!("\0{name}\0\0\0\0\0\0\0").as_bytes());
    s.say(b'E', b"\0\0\0\0\0");
    s.say(b'S', b"");
    match s.0.lost(false) {
        Loss::Silent(_) => {
            s.got("2", "SELECT 1", b'I');
            String::new()
        }
        Loss::Told { reply, .. } => code(&reply),
        Loss::End(_) => panic!("it can go on"),
    }
}

#[test]
fn a_statement_is_what_its_name_means_at_the_node() {
    let mut s = S::new();
    s.extended("w", "INSERT INTO t VALUES (1)")
        .got("12n", "INSERT 0 1", b'I');
    s.extended("r", "SELECT 1").got("12T", "SELECT 1", b'I');
    s.extended("", "INSERT INTO t VALUES (1)")
        .got("12n", "INSERT 0 1", b'I');
    s.extended("", "SELECT 1").got("12T", "SELECT 1", b'I');
    for (name, code) in [("w", "40003"), ("r", ""), ("", ""), ("nobody", "40003")] {
        assert_eq!(runs(&mut s, name), code, "{name}");
    }
    // A Parse that failed, and a Close that was skipped, leave the name to what it was.
    for second in [&b"w\0SELECT 1\0\0\0"[..], b"x\0nonsense\0\0\0"] {
        s.say(b'P', second);
        s.say(b'C', b"Sw\0");
        s.say(b'S', b"");
        s.refuse("42P05");
        s.hear(b'Z', b"I");
        assert_eq!(runs(&mut s, "w"), "40003");
        assert_eq!(runs(&mut s, "r"), "");
    }
    // Nor may one that has no answer yet.
    s.say(b'P', b"w\0SELECT 1\0\0\0");
    s.say(b'S', b"");
    assert_eq!(runs(&mut s, "w"), "40003");

    // A portal of a cycle that follows the one that ends now.
    s.q("SELECT 1");
    s.say(b'B', b"\0w\0\0\0\0\0\0\0");
    s.got("T", "SELECT 1", b'I');
    s.say(b'E', b"\0\0\0\0\0");
    s.say(b'S', b"");
    assert!(matches!(s.0.lost(false), Loss::Told { reply, .. } if code(&reply) == "40003"));
}

#[test]
fn statements_that_are_closed_leave_nothing_behind() {
    let mut s = S::new();
    let parse = |s: &mut S, i: u32, sql: &str| {
        s.say(b'P', format!("s{i}\0{sql}\0\0\0").as_bytes());
        s.say(b'S', b"");
    };
    for i in 0..1000 {
        parse(&mut s, i, "SELECT 1");
        s.hear(b'1', b"");
        s.hear(b'Z', b"I");
        s.say(b'B', format!("p{i}\0s{i}\0\0\0\0\0\0\0").as_bytes());
        s.say(b'C', format!("Pp{i}\0").as_bytes());
        s.say(b'C', format!("Ss{i}\0").as_bytes());
        s.say(b'S', b"");
        s.hear(b'2', b"");
        s.hear(b'3', b"");
        s.hear(b'3', b"");
        s.hear(b'Z', b"I");
        // One that fails.
        parse(&mut s, i, "nonsense");
        s.refuse("42601");
        s.hear(b'Z', b"I");
    }
    let t = &s.0;
    let held = t.statements.len() + t.portals.len() + t.texts.len() + t.pending.len();
    assert_eq!(held, 0);
}

#[test]
fn a_client_of_an_endpoint_is_not_told_that_a_node_follows() {
    let mut t = Track::new(true);
    let parameters = [
        ("in_hot_standby", "on"),
        ("default_transaction_read_only", "on"),
        ("canon.term", "3"),
        ("server_version", "15.0"),
    ];
    let parameters = parameters.map(|(k, v)| (k.to_owned(), v.to_owned()));
    let told = text(&t.connected(&parameters));
    assert!(told.contains("in_hot_standby\0off\0") && !told.contains("canon.term"));
    assert!(
        told.contains("default_transaction_read_only\0off"),
        "{told:?}"
    );
    t.start();
    // Nothing of it is new at the next node, and nothing is carried there.
    assert!(t.connected(&parameters).is_empty());
    assert_eq!(t.carry().settings, []);
    let mut out = Vec::new();
    t.node(b'S', &whole(b'S', b"canon.commit_token\0x:1:2\0"), &mut out);
    assert!(text(&out).contains("x:1:2"));
    let token = ("canon.min_token".into(), "x:1:2".into());
    assert_eq!(t.carry().settings, [token]);
}

#[test]
fn a_session_is_not_behind_itself_where_its_client_asked_for_less() {
    let token = |n| format!("{:032x}:1:0/{n}", 7);
    for (committed, goes) in [(9, 9), (3, 5)] {
        let mut s = S::new();
        s.q(&format!("SET canon.min_token = '{}'", token(5)));
        for (name, n) in [("canon.min_token", 5), ("canon.commit_token", committed)] {
            let told = format!("{name}\0{}\0", token(n));
            s.0.node(b'S', &whole(b'S', told.as_bytes()), &mut vec![]);
        }
        let carried = ("canon.min_token".to_owned(), token(goes));
        assert_eq!(s.0.carry().settings, [carried]);
    }
}

#[test]
fn prepared_statements_of_sql_are_carried_one_by_one_and_those_of_both_kinds_at_once_are_not() {
    let mut s = S::new();
    s.q("SET x.y = ';'; PREPARE a AS SELECT 1; PREPARE \"B c\" AS SELECT ';'");
    for tag in ["SET", "PREPARE", "PREPARE"] {
        s.hear(b'C', format!("{tag}\0").as_bytes());
    }
    s.hear(b'Z', b"I");
    let texts = ["PREPARE \"B c\" AS SELECT ';'", "PREPARE a AS SELECT 1"];
    assert_eq!(s.0.carry().texts, texts);
    s.q("DEALLOCATE PREPARE a").got("", "DEALLOCATE", b'I');
    assert_eq!(s.0.carry().texts, texts[..1]);
    s.extended("", "PREPARE d AS SELECT 1")
        .got("12n", "PREPARE", b'I');
    assert!(!s.0.is_between() && s.0.is_idle());
    assert!(matches!(s.0.lost(false), Loss::End(_)));
}

/// COPY FROM STDIN by the extended protocol: the Sync that goes with Execute counts for nothing, the one behind the data does.
#[test]
fn a_copy_of_the_extended_protocol_is_one_cycle() {
    for ahead in [false, true] {
        let mut s = S::new();
        s.say(b'P', b"\0COPY t FROM STDIN\0\0\0");
        s.say(b'B', b"\0\0\0\0\0\0\0\0");
        s.say(b'E', b"\0\0\0\0\0");
        s.say(b'S', b"");
        let data = |s: &mut S| {
            for (kind, body) in [(b'd', &b"1\n"[..]), (b'c', b""), (b'S', b"")] {
                assert_eq!(s.say(kind, body), Said::Forward);
            }
        };
        // Some do not wait until they are asked for the data.
        if ahead {
            data(&mut s);
        }
        for kind in *b"12G" {
            s.hear(kind, b"");
        }
        if !ahead {
            data(&mut s);
        }
        assert!(!s.0.is_idle());
        s.got("", "COPY 1", b'I');
        assert!(s.0.is_between(), "{ahead}");
        s.q("INSERT INTO t VALUES (2)").got("", "INSERT 0 1", b'I');
        assert_eq!(s.0.lost(true), Loss::Silent(vec![]));
    }
    // One that fails in the middle.
    let mut s = S::new();
    s.extended("", "COPY t FROM STDIN");
    for kind in *b"12nG" {
        s.hear(kind, b"");
    }
    s.say(b'd', b"x\n");
    s.refuse("22P02");
    s.say(b'c', b"");
    s.say(b'S', b"");
    s.hear(b'Z', b"I");
    assert!(s.0.is_between());
    // By the simple protocol nothing but its end ends it.
    s.q("COPY t FROM STDIN");
    s.hear(b'G', b"");
    s.say(b'd', b"1\n");
    s.say(b'c', b"");
    assert!(!s.0.is_idle());
    s.got("", "COPY 1", b'I');
    assert!(s.0.is_between());
}

/// Everything that the track keeps of messages, in bytes.
fn kept(t: &Track) -> usize {
    let ack = |a: &Ack| match a {
        Ack::Parse { name, message, .. } => 1 + name.len() + message.len(),
        Ack::Close { .. } => 1,
    };
    let cycle = |c: &Cycle| c.bytes.len() + c.held.len() + c.acks.iter().map(ack).sum::<usize>();
    t.pending.iter().map(cycle).sum::<usize>() + t.portals.len()
}

#[test]
fn who_never_says_sync_is_not_kept_without_bound() {
    let wide = vec![b'x'; 1000];
    let text = [&b"\0SELECT 1 -- "[..], &wide, b"\0\0\0"].concat();
    // Answers that are much longer than the questions.
    let mut s = S::new();
    let mut out = 0;
    for _ in 0..10_000 {
        s.say(b'D', b"S\0");
        s.hear(b't', &wide);
        out += s.hear(b'T', &wide).1.len();
        assert!(kept(&s.0) <= 2 * KEPT);
    }
    assert!(out > 10 << 20, "the client gets them: {out}");
    // Statements that each take the place of the one before, and whose answers come late.
    let mut s = S::new();
    for i in 0..10_000 {
        s.say(b'P', &text);
        if i % 1000 == 999 {
            (0..1000).for_each(|_| _ = s.hear(b'1', b""));
        }
        assert!(kept(&s.0) <= 2 * KEPT, "{i}");
    }
    s.say(b'S', b"");
    s.hear(b'Z', b"I");
    assert_eq!(s.0.carry().parses, [whole(b'P', &text)]);
    // What comes behind an error is nothing.
    let mut s = S::new();
    s.say(b'P', b"\0nonsense\0\0\0");
    s.refuse("42601");
    for i in 0..10_000 {
        let name = format!("s{i}");
        s.say(b'P', &[name.as_bytes(), &text].concat());
        s.say(b'B', &[name.as_bytes(), b"\0\0\0\0\0\0\0\0"].concat());
        assert!(kept(&s.0) <= 2 * KEPT, "{i}");
    }
    s.say(b'S', b"");
    s.hear(b'Z', b"I");
    assert!(s.0.is_between() && s.0.carry().parses.is_empty());
}

#[test]
fn a_refused_cycle_that_has_become_too_long_to_run_again_is_the_clients() {
    let mut s = S::new();
    s.say(b'P', b"\0INSERT INTO t VALUES (1)\0\0\0");
    assert_eq!(s.refuse("25006"), Heard::Nothing);
    let long = [&b"\0"[..], &vec![b'x'; KEPT], b"\0\0\0"].concat();
    s.say(b'P', &long);
    s.say(b'S', b"");
    let (heard, out) = s.hear(b'Z', b"I");
    assert_eq!((heard, code(&out).as_str()), (Heard::Forward, "25006"));
    assert!(s.0.is_between());
}

#[test]
fn a_flush_hands_out_what_came_before_it() {
    let mut s = S::new();
    s.say(b'P', b"\0SELECT 1\0\0\0");
    s.say(b'D', b"S\0");
    for kind in *b"1tT" {
        assert_eq!(s.hear(kind, b"").0, Heard::Nothing);
    }
    let out = [whole(b'1', b""), whole(b't', b""), whole(b'T', b"")].concat();
    assert_eq!(s.say(b'H', b""), Said::Both(out));
    // The client has seen something.
    s.say(b'S', b"");
    assert!(matches!(s.0.lost(false), Loss::Told { .. }));
}

/// What a node skips after an error is not known when a simple query stands in the middle of it: how many ReadyForQuery come, neither.
#[test]
fn a_session_whose_answers_cannot_be_counted_ends_with_its_node() {
    let mixed = |e: bool| {
        let mut s = S::new();
        s.say(b'P', b"\0nonsense\0\0\0");
        s.q("INSERT INTO t VALUES (1)");
        s.say(b'S', b"");
        match e {
            true => _ = s.refuse("42601"),
            false => _ = s.hear(b'1', b""),
        }
        s
    };
    let mut s = mixed(false);
    s.got("", "INSERT 0 1", b'I');
    s.hear(b'Z', b"I");
    assert!(s.0.is_between());
    let mut s = mixed(true);
    s.hear(b'Z', b"I");
    assert!(!s.0.is_between());
    s.q("DISCARD ALL").got("", "DISCARD ALL", b'I');
    assert!(matches!(s.0.lost(true), Loss::End(_)));
}

/// Of a long text the head is all that is seen: it may write, and it may leave something that stays at its node.
#[test]
fn a_text_that_is_not_read_is_a_write_that_ties() {
    let mut s = S::new();
    let head = whole(b'Q', b"SELECT 'x");
    assert_eq!(s.0.begun(b'Q', &head), Said::Forward);
    assert!(!s.0.waits(true) && !s.0.waits(true));
    s.got("TD", "SELECT 1", b'I');
    assert!(s.0.is_idle() && !s.0.is_between());
    assert!(matches!(s.0.lost(false), Loss::End(_)));

    // Long data does not: what it is for is known.
    let mut s = S::new();
    s.say(b'P', b"\0SELECT $1\0\0\0");
    let head = whole(b'B', b"\0\0\0\0\0\x01");
    assert_eq!(s.0.begun(b'B', &head), Said::Forward);
    s.say(b'E', b"\0\0\0\0\0");
    s.say(b'S', b"");
    s.got("12D", "SELECT 1", b'I');
    assert!(s.0.is_between());
    // It cannot be run again: it is not here.
    s.say(b'P', b"\0SELECT $1\0\0\0");
    s.0.begun(b'B', &head);
    s.say(b'E', b"\0\0\0\0\0");
    s.say(b'S', b"");
    assert!(matches!(s.0.lost(false), Loss::Told { .. }));
}

#[test]
fn statements_are_kept_up_to_a_limit() {
    let mut s = S::new();
    let text = "x".repeat(PREPARED / 8);
    // The same name again takes the place of the one before.
    for n in (0..6).chain(0..6) {
        s.extended(&format!("s{n}"), &format!("SELECT '{text}'"));
        s.got("12nD", "SELECT 1", b'I');
    }
    assert_eq!((s.0.carry().parses.len(), s.0.is_between()), (6, true));
    for n in 6..20 {
        s.extended(&format!("s{n}"), &format!("SELECT '{text}'"));
        s.got("12nD", "SELECT 1", b'I');
    }
    let kept: usize = s.0.carry().parses.iter().map(Vec::len).sum();
    assert!(kept <= PREPARED, "{kept}");
    assert!(!s.0.is_between());
    s.q("DISCARD ALL").got("", "DISCARD ALL", b'I');
    assert!(s.0.is_between());
}
