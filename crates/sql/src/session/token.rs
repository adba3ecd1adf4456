//! Tokens: what a session has seen, as text that another session, server or service can be given.
//!
//! ```text
//! 0f1e…(32 hex digits):3:00000001/2C000007      cluster : term : position
//! ```
//! The position says what must be visible. Cluster and term say of whose history: after a forced promotion some positions of the old
//! term were lost, and new commits may stand at the same numbers. A token of an older term is good up to the position at which the next
//! term began, since so far both histories are the same.
//!
//! The token of a commit in doubt (40003) names that commit: [`Token::outcome`] says what has become of it.
//!
//! Left out on purpose: a signature. Who makes up a token can only make his own reads wait, or fail.

use crate::cluster_status::{lsn, parse_lsn};
use crate::engine::Outcome;
use crate::reading::History;
use base::{Error, Position, Result, SqlState};
use std::fmt;

/// See the head of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    pub cluster: u128,
    pub term: u64,
    pub position: Position,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:032x}:{}:{}",
            self.cluster,
            self.term,
            lsn(self.position)
        )
    }
}

impl Token {
    /// The token of this position in the history's newest term.
    pub fn of(history: &History, position: Position) -> Token {
        Token {
            cluster: history.cluster,
            term: history.terms.last().map_or(0, |t| t.0),
            position,
        }
    }

    /// Reads what `Display` prints; `None`: it is something else.
    pub fn parse(text: &str) -> Option<Token> {
        let mut parts = text.trim().split(':');
        let (cluster, term, position) = (parts.next()?, parts.next()?, parts.next()?);
        let hex = cluster.len() == 32 && cluster.bytes().all(|b| b.is_ascii_hexdigit());
        let digits = !term.is_empty() && term.bytes().all(|b| b.is_ascii_digit());
        (hex && digits && parts.next().is_none()).then_some(())?;
        Some(Token {
            cluster: u128::from_str_radix(cluster, 16).ok()?,
            term: term.parse().ok()?,
            position: parse_lsn(position).ok()?,
        })
    }

    /// Whether it is of a later term than this history has.
    pub fn is_of_a_later_term(&self, h: &History) -> bool {
        self.cluster == h.cluster && self.term > h.terms.last().map_or(0, |t| t.0)
    }

    /// Refuses a token that is not of this history, as far as its terms tell: 22023 for another cluster, 55000 for what was lost in a
    /// promotion, and for a term that this server has not heard of.
    pub fn check(&self, h: &History) -> Result<()> {
        let no = |code, what: String| Err(Error::new(code, what));
        if self.cluster != h.cluster {
            return no(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("the token is of another cluster: {self}"),
            )
            .map_err(|e: Error| {
                e.detail(format!(
                    "This server belongs to cluster {:032x}.",
                    h.cluster
                ))
            });
        }
        if self.is_of_a_later_term(h) {
            let newest = h.terms.last().map_or(0, |t| t.0);
            return no(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!(
                    "the token is of term {}, which this server does not know",
                    self.term
                ),
            )
            .map_err(|e: Error| {
                e.detail(format!("This server is in term {newest}."))
                    .hint("It follows an old primary still, or has not heard of a promotion yet; try again, or elsewhere.")
            });
        }
        match h.terms.iter().find(|(term, _)| *term > self.term) {
            Some((next, start)) if self.position > *start => no(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!(
                    "the token's position {} of term {} is not in this server's history",
                    lsn(self.position),
                    self.term
                ),
            )
            .map_err(|e: Error| {
                e.detail(format!(
                    "Term {next} began after {}; what followed in term {} was lost.",
                    lsn(*start),
                    self.term
                ))
            }),
            _ => Ok(()),
        }
    }

    /// What has become of the commit at this position, asked at a primary that shows what stands up to `published`. Its errors are those of
    /// [`Token::check`] for another cluster and a later term.
    pub fn outcome(&self, h: &History, published: Position) -> Result<Outcome> {
        if self.cluster != h.cluster || self.is_of_a_later_term(h) {
            self.check(h)?;
        }
        Ok(match self.check(h) {
            Err(_) => Outcome::Aborted,
            Ok(()) if self.position > published => Outcome::Running,
            Ok(()) => Outcome::Committed,
        })
    }

    /// 55000: the transaction has taken its snapshot, and keeps it.
    pub fn after_the_snapshot(&self) -> Error {
        Error::new(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!(
                "canon.min_token {} is of after the transaction's snapshot",
                lsn(self.position)
            ),
        )
        .hint("Set it before the first query of the transaction, or use READ COMMITTED.")
    }

    /// 55000: nobody has given this position yet.
    pub fn from_the_future(&self) -> Error {
        Error::new(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!(
                "canon.min_token {} is not in this server's history",
                lsn(self.position)
            ),
        )
        .detail("The position lies in the future.")
    }
}

/// Of a transaction whose outcome is not known (40003): how it can be asked for. Other errors stay as they are.
pub fn to_be_asked(e: Error, token: &str) -> Error {
    if e.code() != SqlState::STATEMENT_COMPLETION_UNKNOWN {
        return e;
    }
    let named = format!("Transaction token: {token}");
    let detail = match e.fields().detail.as_str() {
        "" => named,
        why => format!("{why}\n{named}"),
    };
    e.detail(detail).hint(format!(
        "When there is a primary, ask: SELECT canon_txn_status('{token}')"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(n: u64) -> Position {
        Position::from_u64(n)
    }

    fn history() -> History {
        History {
            cluster: 7,
            terms: vec![(1, p(0)), (3, p(100)), (4, p(200))],
        }
    }

    #[test]
    fn tokens_are_read_as_they_are_printed() {
        let t = Token::of(&history(), Position::new(300, 7));
        let text = "00000000000000000000000000000007:4:00000001/2C000007";
        assert_eq!(t.to_string(), text);
        assert_eq!(Token::parse(text), Some(t));
        for bad in [
            "",
            "soon",
            "7:4:0/1",
            "0000000000000000000000000000000g:4:0/1",
            "00000000000000000000000000000007:-1:0/1",
            "00000000000000000000000000000007::0/1",
            "00000000000000000000000000000007:4:1",
            "00000000000000000000000000000007:4:0/1:2",
            "00000000000000000000000000000007:99999999999999999999:0/1",
        ] {
            assert_eq!(Token::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_token_is_of_this_history_or_refused() {
        let t = |cluster, term, at| {
            let t = Token {
                cluster,
                term,
                position: p(at),
            };
            t.check(&history()).map_err(|e| e.code())
        };
        assert_eq!(t(7, 4, 1000), Ok(()));
        assert_eq!(t(7, 3, 200), Ok(()));
        assert_eq!(t(7, 1, 100), Ok(()));
        // Term 2 never led here; what it may have had beyond the start of term 3 is not here.
        assert_eq!(t(7, 2, 100), Ok(()));
        let lost = Err(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
        for (term, at) in [(3, 201), (1, 101), (1, 150), (2, 101), (5, 1)] {
            assert_eq!(t(7, term, at), lost, "{term} {at}");
        }
        let later = |cluster, term| {
            let t = Token {
                cluster,
                term,
                position: p(1),
            };
            t.is_of_a_later_term(&history())
        };
        assert!(later(7, 5) && !later(7, 4) && !later(8, 5));
        let outcome = |cluster, term, at| {
            let t = Token {
                cluster,
                term,
                position: p(at),
            };
            t.outcome(&history(), p(250)).map_err(|e| e.code())
        };
        assert_eq!(outcome(7, 3, 200), Ok(Outcome::Committed));
        assert_eq!(outcome(7, 3, 201), Ok(Outcome::Aborted));
        assert_eq!(outcome(7, 4, 250), Ok(Outcome::Committed));
        assert_eq!(outcome(7, 4, 251), Ok(Outcome::Running));
        assert_eq!(outcome(7, 5, 1), lost.map(|()| Outcome::Unknown));
        let elsewhere = Err(SqlState::INVALID_PARAMETER_VALUE);
        assert_eq!(outcome(8, 4, 1), elsewhere);
        assert_eq!(t(8, 4, 1), Err(SqlState::INVALID_PARAMETER_VALUE));
    }
}
