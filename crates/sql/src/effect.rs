//! What a text of statements may do, as far as who stands between must know: whether it may run again, whether it may have committed.
//!
//! Who asks: the proxy, of sessions at their nodes, and a replica, of sessions whose transactions run at the primary.
//!
//! A text is split into statements at semicolons outside of quotes and comments, and each is judged by its first word and by words that
//! change what a reading statement does. When in doubt it writes: then an answer that was lost is an error to the client, and not a
//! second run.
//!
//! Left out on purpose: parsing, which every text that passes the proxy would pay for. `session::class` judges by the tree. A test there
//! shows over the statements of the SQL tests that this scan promises no more than the tree does.

use crate::functions::effect as function;
use crate::functions::registry;

/// What running a text may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// It may leave something behind when it runs as a transaction of its own.
    pub writes: bool,
    pub begins: bool,
    pub commits: bool,
    pub rolls_back: bool,
    /// The session may ask for the number that it has drawn.
    pub draws: bool,
    /// Whether a block is open behind it; none: as before it.
    pub block: Option<bool>,
    /// It asks for transactions that only read.
    pub reads_only: bool,
    /// The session may hold something at its node behind it that it cannot take elsewhere.
    pub ties: bool,
}

impl std::ops::BitOrAssign for Effect {
    fn bitor_assign(&mut self, o: Effect) {
        self.writes |= o.writes;
        self.begins |= o.begins;
        self.commits |= o.commits;
        self.rolls_back |= o.rolls_back;
        self.draws |= o.draws;
        self.reads_only |= o.reads_only;
        self.ties |= o.ties;
        self.block = o.block.or(self.block);
    }
}

impl Effect {
    /// Whether a second run is as good as one.
    pub fn may_run_again(&self) -> bool {
        !self.writes && !self.commits
    }
}

/// What may have become of what was sent one after the other and has no answer.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    /// Something of it may have committed.
    pub may_have_committed: bool,
    /// All of it leaves a block open.
    pub block: bool,
    /// There is one for sure: it was open before, and nothing has ended it.
    sure: bool,
}

impl Course {
    /// `block`: one is open, and has been answered.
    pub fn new(block: bool) -> Course {
        Course {
            may_have_committed: false,
            block,
            sure: block,
        }
    }

    /// The next piece. A block that a piece without an answer begins may not have come about, so it protects what is in the same piece and
    /// nothing after it. Inside of a piece a rollback may stand before a write.
    pub fn then(&mut self, e: Effect) {
        let protected = self.sure || e.begins;
        self.may_have_committed |= e.commits || (e.writes && (e.rolls_back || !protected));
        self.sure &= !(e.commits || e.rolls_back);
        self.block = e.block.unwrap_or(self.block);
    }
}

/// Words by which a statement that begins as a read is none.
const WRITING: [&str; 6] = ["INTO", "INSERT", "UPDATE", "DELETE", "MERGE", "ANALYZE"];

/// Judges a text.
pub fn effect(sql: &str) -> Effect {
    let mut all = Effect::default();
    for s in statements(sql) {
        all |= one(&s.words, s.functions);
    }
    all
}

fn one(words: &[String], functions: function::Effect) -> Effect {
    let has = |w: &str| words.iter().any(|x| x.eq_ignore_ascii_case(w));
    let is = |at: usize, w: &str| words.get(at).is_some_and(|x| x.eq_ignore_ascii_case(w));
    let mut e = Effect {
        draws: functions.draws,
        ties: is(0, "LISTEN")
            || is(0, "DECLARE") && has("HOLD") && !has("WITHOUT")
            || has("TEMP")
            || has("TEMPORARY")
            || has("PG_TEMP")
            || functions.ties,
        ..Effect::default()
    };
    let Some(first) = words.first() else {
        return e;
    };
    match first.to_ascii_uppercase().as_str() {
        "SELECT" | "VALUES" | "TABLE" | "WITH" | "EXPLAIN" => {
            e.writes = WRITING.iter().any(|w| has(w)) || functions.lasting;
        }
        "SHOW" | "SET" | "RESET" | "DISCARD" | "DEALLOCATE" | "PREPARE" | "SAVEPOINT"
        | "RELEASE" | "FETCH" | "MOVE" | "CLOSE" => {
            e.commits = is(1, "TRANSACTION") && is(0, "PREPARE")
        }
        // WITH HOLD runs the query to its end.
        "DECLARE" => e.writes = WRITING.iter().any(|w| has(w)) || functions.lasting,
        "BEGIN" | "START" => e.begins = true,
        "COMMIT" | "END" => e.commits = true,
        "ROLLBACK" | "ABORT" => {
            let to = is(1, "TO") || is(2, "TO");
            e.rolls_back = !to;
        }
        "INSERT" => (e.writes, e.draws) = (true, true),
        _ => e.writes = true,
    }
    if e.begins || e.commits || e.rolls_back {
        e.block = Some(e.begins || has("CHAIN") && !has("NO"));
    }
    e.reads_only = (e.begins || is(0, "SET")) && (has("ONLY") || has("TRANSACTION_READ_ONLY"));
    e
}

/// One of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement<'a> {
    /// As they are written; `""` for what stands in double quotes, nothing for other quotes.
    pub words: Vec<String>,
    pub text: &'a str,
    /// What the functions do together whose names stand in it, in double quotes or not.
    functions: function::Effect,
}

/// The statements of a text, without empty ones.
pub fn statements(sql: &str) -> Vec<Statement<'_>> {
    let b = sql.as_bytes();
    let (mut all, mut words, mut at, mut from) = (Vec::new(), Vec::<String>::new(), 0, 0);
    let mut functions = function::Effect::default();
    // Where the last word ends.
    let mut word_end = 0;
    while at < b.len() {
        match b[at] {
            b';' => {
                if !words.is_empty() {
                    all.push(Statement {
                        words: std::mem::take(&mut words),
                        text: sql[from..at].trim(),
                        functions: std::mem::take(&mut functions),
                    });
                }
                at += 1;
                from = at;
            }
            b'-' if b.get(at + 1) == Some(&b'-') => {
                at = find(b, at, |x| x == b'\n');
            }
            b'/' if b.get(at + 1) == Some(&b'*') => at = comment(b, at),
            b'\'' => {
                // A prefix such as E or B is no word of its own.
                let alone = |w: &&String| w.len() == 1 && "eEbBxXnN".contains(w.as_str());
                let prefix = words.last().filter(|_| word_end == at).filter(alone);
                let escapes = prefix.is_some_and(|w| w.eq_ignore_ascii_case("e"));
                if prefix.is_some() {
                    words.pop();
                }
                at = quoted(b, at, b'\'', escapes);
            }
            b'"' => {
                let end = quoted(b, at, b'"', false);
                functions |= registry::effect(sql[at..end].trim_matches('"'));
                words.push("\"\"".into());
                at = end;
            }
            b'$' => at = dollar(b, at),
            x if word(x) => {
                let end = find(b, at, |x| !word(x) && x != b'$');
                let word = String::from_utf8_lossy(&b[at..end]);
                functions |= registry::effect(&word);
                words.push(word.into_owned());
                (at, word_end) = (end, end);
            }
            _ => at += 1,
        }
    }
    if !words.is_empty() {
        all.push(Statement {
            words,
            text: sql[from..].trim(),
            functions,
        });
    }
    all
}

fn word(x: u8) -> bool {
    x.is_ascii_alphanumeric() || x == b'_' || x >= 0x80
}

fn find(b: &[u8], from: usize, is: impl Fn(u8) -> bool) -> usize {
    b[from..]
        .iter()
        .position(|x| is(*x))
        .map_or(b.len(), |n| from + n)
}

/// Behind a comment, which may hold others.
fn comment(b: &[u8], from: usize) -> usize {
    let (mut at, mut depth) = (from, 0);
    while at + 1 < b.len() {
        match (b[at], b[at + 1]) {
            (b'/', b'*') => (depth, at) = (depth + 1, at + 2),
            (b'*', b'/') if depth == 1 => return at + 2,
            (b'*', b'/') => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    b.len()
}

/// Behind a quoted piece.
fn quoted(b: &[u8], from: usize, quote: u8, escapes: bool) -> usize {
    let mut at = from + 1;
    while at < b.len() {
        match b[at] {
            b'\\' if escapes => at += 2,
            x if x == quote && b.get(at + 1) == Some(&quote) => at += 2,
            x if x == quote => return at + 1,
            _ => at += 1,
        }
    }
    b.len()
}

/// Behind a piece in dollar quotes, or behind the dollar of something else.
fn dollar(b: &[u8], from: usize) -> usize {
    let end = find(b, from + 1, |x| !word(x));
    if b.get(end) != Some(&b'$') || b.get(from + 1).is_some_and(u8::is_ascii_digit) {
        return from + 1;
    }
    let tag = &b[from..=end];
    let rest = &b[end + 1..];
    let close = rest.windows(tag.len()).position(|w| w == tag);
    close.map_or(b.len(), |n| end + 1 + n + tag.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_end_at_semicolons_outside_of_quotes() {
        let sql = "select ';', \"a;b\" ; -- x; y\n insert into t values ($$;$$, $a$ $$; $a$) /* ; /* ; */ */; update t set a = $1";
        let first: Vec<String> = statements(sql).iter().map(|s| s.words[0].clone()).collect();
        assert_eq!(first, ["select", "insert", "update"]);
        for odd in ["'", "\"", "$x$", "/*", "--", "$", "e'\\", "é'", "$1$"] {
            statements(odd);
        }
    }

    #[test]
    fn what_may_run_again_and_what_may_have_committed() {
        for sql in [
            "SELECT 1",
            "  /* a */ select * from t where x = 'insert into'",
            "show all",
            "BEGIN",
            "start transaction; select 1",
            "SET x = 1",
            "",
            "WITH a AS (SELECT 1) SELECT * FROM a",
            "ROLLBACK",
            "values (1), (nextval('s'))",
            "DECLARE c CURSOR FOR SELECT nextval('s')",
            "select 'setval', \"setvals\"",
        ] {
            assert!(effect(sql).may_run_again(), "{sql}");
        }
        for sql in [
            "INSERT INTO t VALUES (1)",
            "select 1; delete from t",
            "WITH a AS (DELETE FROM t RETURNING 1) SELECT * FROM a",
            "SELECT 1 INTO t",
            "COMMIT",
            "SELECT pg_promote()",
            "EXECUTE x",
            "EXPLAIN ANALYZE INSERT INTO t VALUES (1)",
            "COPY t FROM STDIN",
            "DECLARE c CURSOR WITH HOLD FOR SELECT setval('s', 1)",
            "select pg_catalog.\"setval\"('s', 1)",
        ] {
            assert!(!effect(sql).may_run_again(), "{sql}");
        }
        // Only an E of its own begins a string with escapes.
        for sql in [
            r"SELECT 1 WHERE 'x' LIKE'\'; INSERT INTO t VALUES (1); --'",
            r"SELECT $$a$$, a$e'\'; INSERT INTO t VALUES (1); --'",
        ] {
            assert!(effect(sql).writes, "{sql}");
        }
        for sql in [r"SELECT E'\'; INSERT --'", r"SELECT $$a$$e'\'; INSERT --'"] {
            assert!(!effect(sql).writes, "{sql}");
        }
        assert!(effect("BEGIN; UPDATE t SET a = 1").begins);
        assert!(!effect("ROLLBACK TO SAVEPOINT a").rolls_back && effect("abort").rolls_back);
        assert!(effect("insert into t values (1)").draws && effect("select nextval('s')").draws);
    }
    /// The proxy and a node that forwards agree about every function.
    #[test]
    fn functions_are_judged_as_the_nodes_do() {
        for f in crate::functions::registry::all_functions() {
            let said = registry::effect(f.name);
            let judged = effect(&format!("SELECT {}()", f.name));
            if f.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') {
                assert_eq!(
                    (judged.writes, judged.ties),
                    (said.lasting, said.ties),
                    "{}",
                    f.name
                );
            }
        }
    }
}
