//! Where a node stands in its cluster, as functions, views and settings tell it.
//!
//! Positions are shown as PostgreSQL shows places in its log (`pg_lsn`): two numbers of 32 bits in hexadecimal, here with all their
//! digits, so that the texts compare as the positions do. What `pg_wal_lsn_diff` subtracts are positions, not bytes.
//!
//! Left out on purpose: the type `pg_lsn` itself; such columns and functions are `text`.

use base::{Error, Oid, Position, Result, SqlState};

/// A replica, as its primary sees it. Times are microseconds, points in time since 2000-01-01 UTC.
#[derive(Clone, Debug, Default)]
pub struct Sender {
    /// A number for the connection.
    pub pid: i32,
    pub user: Oid,
    /// The replica's `node_name`.
    pub name: String,
    pub client_addr: Option<String>,
    pub client_port: Option<i32>,
    /// Where it takes clients.
    pub listen: Option<String>,
    /// It has proven to be a node of this cluster.
    pub member: bool,
    pub since: i64,
    /// `backup` (it receives a checkpoint), `catchup`, `streaming`.
    pub state: &'static str,
    pub sent: Position,
    /// In its memory, in its log, shown by it.
    pub received: Position,
    pub persisted: Position,
    pub visible: Position,
    /// How long the newest acknowledged tick took to come to each of these and back, when it is known.
    pub received_lag: Option<i64>,
    pub persisted_lag: Option<i64>,
    pub visible_lag: Option<i64>,
    /// Whether durable commits wait for replicas (`synchronous_replicas` above 0).
    pub synchronous: bool,
    pub replied: Option<i64>,
}

/// A replica's connection to its primary.
#[derive(Clone, Debug, Default)]
pub struct Receiver {
    pub pid: i32,
    /// `connecting`, `bootstrapping`, `streaming`.
    pub status: &'static str,
    /// Where the stream began, and the term that it carries.
    pub start: Position,
    pub term: u64,
    pub received: Position,
    pub persisted: Position,
    pub last_message: Option<i64>,
    pub host: String,
    pub port: u16,
    /// The connection string without its password.
    pub conninfo: String,
}

/// Where this node stands.
#[derive(Clone, Debug, Default)]
pub struct ClusterStatus {
    pub term: u64,
    /// Newest commit that has been given to the log; at a replica: shown.
    pub current: Position,
    pub flushed: Position,
    /// At a replica: has arrived, is shown, and when the newest that is shown was committed as far as is known.
    pub received: Position,
    pub replayed: Position,
    pub replayed_at: Option<i64>,
    pub senders: Vec<Sender>,
    pub receiver: Option<Receiver>,
}

/// A position as PostgreSQL prints places in its log.
pub fn lsn(p: Position) -> String {
    let n = p.as_u64();
    format!("{:08X}/{:08X}", n >> 32, n & 0xffff_ffff)
}

/// Reads what [`lsn`] prints, and shorter forms of it (22P02).
pub fn parse_lsn(text: &str) -> Result<Position> {
    let half = |s: &str| {
        let hex = (1..=8).contains(&s.len()) && s.bytes().all(|b| b.is_ascii_hexdigit());
        hex.then(|| u64::from_str_radix(s, 16).ok()).flatten()
    };
    text.trim()
        .split_once('/')
        .and_then(|(hi, lo)| Some(Position::from_u64(half(hi)? << 32 | half(lo)?)))
        .ok_or_else(|| {
            Error::new(
                SqlState::INVALID_TEXT_REPRESENTATION,
                format!("invalid input syntax for type pg_lsn: \"{text}\""),
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_as_places_in_the_log() {
        let p = Position::new(300, 7);
        assert_eq!(parse_lsn(&lsn(p)).unwrap(), p);
        assert_eq!(lsn(p), "00000001/2C000007");
        assert_eq!(parse_lsn("0/0").unwrap(), Position::ZERO);
        assert_eq!(parse_lsn("FFFFFFFF/FFFFFFFF").unwrap(), Position::MAX);
        for bad in ["", "1", "/", "1/", "1/123456789", "g/0", "-1/0"] {
            assert!(parse_lsn(bad).is_err(), "{bad}");
        }
        assert!(lsn(Position::new(9, 0)) < lsn(Position::new(1000, 0)));
    }
}
