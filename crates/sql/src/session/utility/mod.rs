//! The statements that are about the session and not about data, read by PostgreSQL's grammar: transactions, settings,
//! prepared statements, cursors, COPY, WAIT FOR. (`sqlparser` reads several of them by other databases' grammars, or not at all.)
//!
//! Left out on purpose: two-phase commit.

mod set;
mod statements;
mod words;

pub use words::{Words, text_of};

use super::copy::CopyStmt;
use super::level::Level;
use super::parse::{Fault, Parsed};
use super::wait_for::{self, WaitFor};
use base::{ColumnType, Value};
use sqlparser::ast::Statement;
use sqlparser::tokenizer::{Token, TokenWithSpan};
use std::sync::Arc;

/// What BEGIN and SET TRANSACTION ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    pub isolation: Option<Level>,
    pub read_only: Option<bool>,
    pub deferrable: Option<bool>,
}

/// A value given to SET: one or more words, or DEFAULT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetValue {
    pub text: String,
    /// A word without quotes: an identifier.
    pub bare: bool,
}

/// How far and where FETCH and MOVE go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Forward(i64),
    ForwardAll,
    Backward(i64),
    BackwardAll,
    Absolute(i64),
    Relative(i64),
}

#[derive(Clone, Debug)]
pub enum Utility {
    Begin {
        modes: Modes,
        start: bool,
    },
    Commit {
        chain: bool,
    },
    Rollback {
        chain: bool,
    },
    Savepoint(String),
    Release(String),
    RollbackTo(String),
    SetTransaction(Modes),
    SetCharacteristics(Modes),
    Set {
        name: String,
        value: Option<Vec<SetValue>>,
        local: bool,
    },
    SetRole {
        role: Option<String>,
        local: bool,
        reset: bool,
    },
    SetAuthorization {
        user: Option<String>,
        local: bool,
        reset: bool,
    },
    Reset(String),
    ResetAll,
    Show(String),
    ShowAll,
    Discard(String),
    Prepare {
        name: String,
        types: Vec<String>,
        stmt: Box<Parsed>,
    },
    /// The arguments as a SELECT that gives them.
    Execute {
        name: String,
        args: Option<Arc<Statement>>,
    },
    /// EXPLAIN EXECUTE: what stands between the words, and then as EXECUTE.
    ExplainExecute {
        options: String,
        name: String,
        args: Option<Arc<Statement>>,
    },
    /// None: all.
    Deallocate(Option<String>),
    Declare {
        name: String,
        binary: bool,
        scroll: Option<bool>,
        hold: bool,
        query: Parsed,
        /// What Bind gave for the query's parameters.
        values: Vec<(Value, ColumnType)>,
    },
    Fetch {
        name: String,
        direction: Direction,
        moving: bool,
    },
    /// None: all.
    Close(Option<String>),
    Copy(Box<CopyStmt>),
    /// Schemas and names of constraints; none: all.
    SetConstraints {
        names: Vec<(Option<String>, String)>,
        deferred: bool,
    },
    Listen(String),
    /// None: all.
    Unlisten(Option<String>),
    Notify {
        channel: String,
        payload: String,
    },
    /// Known and refused: 0A000 with this name.
    Unsupported(&'static str),
    Checkpoint,
    WaitFor(Box<WaitFor>),
}

/// Reads the statement if it is one of these.
pub(super) fn parse(tokens: &[TokenWithSpan]) -> Result<Option<Utility>, Fault> {
    let mut p = Words::new(tokens);
    let first = p.peek_word().unwrap_or_default();
    let u = match first.as_str() {
        "begin" => {
            p.next();
            p.opt(&["work", "transaction"]);
            Utility::Begin {
                modes: p.modes()?,
                start: false,
            }
        }
        "start" => {
            p.next();
            p.expect("transaction")?;
            Utility::Begin {
                modes: p.modes()?,
                start: true,
            }
        }
        "commit" | "end" => {
            p.next();
            if p.opt(&["prepared"]) {
                return Ok(Some(Utility::Unsupported("COMMIT PREPARED")));
            }
            p.opt(&["work", "transaction"]);
            Utility::Commit { chain: p.chain()? }
        }
        "rollback" | "abort" => {
            p.next();
            if p.opt(&["prepared"]) {
                return Ok(Some(Utility::Unsupported("ROLLBACK PREPARED")));
            }
            p.opt(&["work", "transaction"]);
            if first == "rollback" && p.opt(&["to"]) {
                p.opt(&["savepoint"]);
                Utility::RollbackTo(p.name()?)
            } else {
                Utility::Rollback { chain: p.chain()? }
            }
        }
        "savepoint" => {
            p.next();
            Utility::Savepoint(p.name()?)
        }
        "release" => {
            p.next();
            p.opt(&["savepoint"]);
            Utility::Release(p.name()?)
        }
        "set" => {
            p.next();
            p.set()?
        }
        "reset" => {
            p.next();
            p.reset()?
        }
        "show" => {
            p.next();
            p.show()?
        }
        "discard" => {
            p.next();
            let what = p.word()?;
            match what.as_str() {
                "all" | "plans" | "sequences" | "temp" | "temporary" => Utility::Discard(what),
                _ => return Err(p.back()),
            }
        }
        "prepare" => {
            p.next();
            if p.opt(&["transaction"]) {
                return Ok(Some(Utility::Unsupported("PREPARE TRANSACTION")));
            }
            return p.prepare().map(Some);
        }
        "execute" => {
            p.next();
            return p.execute().map(Some);
        }
        "explain" => return p.explain_execute(),
        "deallocate" => {
            p.next();
            p.opt(&["prepare"]);
            let all = p.opt(&["all"]);
            Utility::Deallocate(if all { None } else { Some(p.name()?) })
        }
        "declare" => {
            p.next();
            return p.declare().map(Some);
        }
        "fetch" | "move" => {
            p.next();
            p.fetch(first == "move")?
        }
        "close" => {
            p.next();
            let all = p.opt(&["all"]);
            Utility::Close(if all { None } else { Some(p.name()?) })
        }
        "copy" => {
            p.next();
            return CopyStmt::parse(&mut p).map(|c| Some(Utility::Copy(Box::new(c))));
        }
        "listen" => {
            p.next();
            Utility::Listen(p.name()?)
        }
        "notify" => {
            p.next();
            let channel = p.name()?;
            let payload = match p.opt_token(&Token::Comma) {
                true => p.string()?,
                false => String::new(),
            };
            Utility::Notify { channel, payload }
        }
        "do" => return Ok(Some(Utility::Unsupported("DO"))),
        "load" => return Ok(Some(Utility::Unsupported("LOAD"))),
        "call" => return Ok(Some(Utility::Unsupported("CALL"))),
        "wait" => {
            p.next();
            wait_for::parse(&mut p)?
        }
        "unlisten" => {
            p.next();
            Utility::Unlisten(match p.opt_token(&Token::Mul) {
                true => None,
                false => Some(p.name()?),
            })
        }
        "checkpoint" => {
            p.next();
            Utility::Checkpoint
        }
        _ => return Ok(None),
    };
    p.end()?;
    Ok(Some(u))
}

#[cfg(test)]
mod tests {
    use super::super::parse::{Stmt, parse};
    use super::*;

    fn one(sql: &str) -> Utility {
        match &parse(sql).unwrap()[0].stmt {
            Stmt::Utility(u) => (**u).clone(),
            s => panic!("{sql}: {s:?}"),
        }
    }

    #[test]
    fn transactions() {
        let Utility::Begin {
            modes,
            start: false,
        } = one("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY NOT DEFERRABLE")
        else {
            panic!()
        };
        assert_eq!(modes.isolation, Some(Level::RepeatableRead));
        assert_eq!(
            (modes.read_only, modes.deferrable),
            (Some(true), Some(false))
        );
        assert!(matches!(one("END"), Utility::Commit { chain: false }));
        assert!(matches!(
            one("COMMIT AND CHAIN"),
            Utility::Commit { chain: true }
        ));
        assert!(matches!(one("ROLLBACK TO SAVEPOINT \"A\""), Utility::RollbackTo(n) if n == "A"));
        assert!(matches!(one("RELEASE s"), Utility::Release(n) if n == "s"));
        assert!(matches!(
            one("SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE"),
            Utility::SetCharacteristics(Modes {
                read_only: Some(false),
                ..
            })
        ));
    }

    #[test]
    fn settings() {
        let Utility::Set {
            name,
            value: Some(v),
            local: true,
        } = one("SET LOCAL search_path TO a, \"B\", 'c'")
        else {
            panic!()
        };
        assert_eq!(name, "search_path");
        assert_eq!(
            v.iter()
                .map(|v| (v.text.as_str(), v.bare))
                .collect::<Vec<_>>(),
            [("a", true), ("B", true), ("c", false)]
        );
        assert!(
            matches!(one("SET extra_float_digits = -3"), Utility::Set { value: Some(v), .. } if v[0].text == "-3")
        );
        assert!(matches!(
            one("SET TIME ZONE LOCAL"),
            Utility::Set { value: None, .. }
        ));
        assert!(matches!(one("SET a.b = on"), Utility::Set { name, .. } if name == "a.b"));
        assert!(
            matches!(one("show transaction isolation level"), Utility::Show(n) if n == "transaction_isolation")
        );
        assert!(
            matches!(one("SET NAMES 'UTF8'"), Utility::Set { name, .. } if name == "client_encoding")
        );
        assert!(matches!(
            one("SET ROLE none"),
            Utility::SetRole { role: None, .. }
        ));
        assert!(parse("SET x").is_err());
    }

    #[test]
    fn statements_and_cursors() {
        let Utility::Prepare { types, stmt, .. } =
            one("PREPARE p (int, numeric(4, 2)) AS SELECT $1")
        else {
            panic!()
        };
        assert_eq!(types, ["int", "numeric(4,2)"]);
        assert_eq!(&*stmt.text, "SELECT $1");
        assert!(matches!(
            one("EXECUTE p (1, (2))"),
            Utility::Execute { args: Some(_), .. }
        ));
        assert!(matches!(
            one("DECLARE c NO SCROLL CURSOR FOR SELECT 1"),
            Utility::Declare {
                scroll: Some(false),
                hold: false,
                ..
            }
        ));
        for (sql, d) in [
            ("FETCH c", Direction::Forward(1)),
            ("FETCH next", Direction::Forward(1)),
            ("FETCH 5 FROM c", Direction::Forward(5)),
            ("FETCH -5 c", Direction::Backward(5)),
            ("MOVE ALL IN c", Direction::ForwardAll),
            ("FETCH BACKWARD ALL c", Direction::BackwardAll),
            ("FETCH FORWARD 3 FROM c", Direction::Forward(3)),
            ("FETCH LAST FROM c", Direction::Absolute(-1)),
            ("FETCH RELATIVE -2 FROM c", Direction::Relative(-2)),
        ] {
            assert!(
                matches!(one(sql), Utility::Fetch { direction, .. } if direction == d),
                "{sql}"
            );
        }
    }
}
