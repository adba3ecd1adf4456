//! The other end of a session, as the session sees it: a place to put replies, and a source of COPY data.
//!
//! The wire protocol implements [`Client`]; so may a test. Replies are collected and leave at [`Client::flush`] or when the
//! owner of the connection thinks it is time. A statement that has to run again takes its replies back first
//! ([`Client::rewind`]), which works until they have been sent.

use base::{ColumnType, Error, Oid, Result};
pub use base::{Format, Severity, TxnStatus};
use compact_str::CompactString;
use std::future::Future;

/// A column of a result.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    pub name: CompactString,
    pub ty: ColumnType,
    /// The table that it comes from and its number there (from 1); 0 for an expression.
    pub table: Oid,
    pub attribute: i16,
    /// The types of a row's fields, where they are known.
    pub record: Option<std::sync::Arc<crate::types::record::Shape>>,
}

impl Column {
    /// A column that comes from no table.
    pub fn new(name: &str, ty: impl Into<ColumnType>) -> Column {
        Column {
            name: name.into(),
            ty: ty.into(),
            table: 0,
            attribute: 0,
            record: None,
        }
    }

    /// Whether these are the same to a client that was told of the others: names and types, wherever they come from.
    pub(super) fn same_row(these: &[Column], others: &[Column]) -> bool {
        let plain = |c: &Column| (c.name.clone(), c.ty);
        these.len() == others.len() && these.iter().zip(others).all(|(a, b)| plain(a) == plain(b))
    }
}

/// A piece of what the client sends for COPY FROM STDIN.
#[derive(Debug)]
pub enum CopyInput {
    Data(Vec<u8>),
    Done,
    /// The client gives up, with its reason.
    Fail(String),
}

/// The client of a session. All but the futures put into a buffer and return at once.
pub trait Client: Send {
    /// Result columns; formats are given per column.
    fn row_description(&mut self, columns: &[Column], format: &[Format]);
    /// One row: `fill` appends each field as its length (i32, big-endian, -1 for NULL) and its bytes. When it fails nothing is kept.
    fn row<R>(&mut self, fields: usize, fill: impl FnOnce(&mut Vec<u8>) -> Result<R>) -> Result<R>;
    fn command_complete(&mut self, tag: &str);
    /// A portal has more rows than were asked for.
    fn portal_suspended(&mut self);
    fn empty_query(&mut self);
    fn notice(&mut self, severity: Severity, e: &Error);
    /// A setting that clients are told of has changed.
    fn parameter_status(&mut self, name: &str, value: &str);
    fn copy_in_response(&mut self, columns: usize, format: Format);
    fn copy_out_response(&mut self, columns: usize, format: Format);
    fn copy_data(&mut self, data: &[u8]);
    fn copy_done(&mut self);
    /// COPY FROM STDIN ended with an error: what is still to come of its data is to be ignored.
    fn copy_in_failed(&mut self);

    /// Where the next reply will stand.
    fn mark(&self) -> u64;
    /// Takes back the replies since `mark`; false when some have left.
    fn rewind(&mut self, mark: u64) -> bool;
    /// Replies not sent yet, in bytes.
    fn pending(&self) -> usize;
    /// Sends everything; waits while the client does not read.
    fn flush(&mut self) -> impl Future<Output = Result<()>> + Send;
    /// The next piece of COPY data. An error means that the connection is gone.
    fn copy_input(&mut self) -> impl Future<Output = Result<CopyInput>> + Send;
    /// Sleeps.
    fn pause(&mut self, time: std::time::Duration) -> impl Future<Output = ()> + Send;
}
