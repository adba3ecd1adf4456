//! Messages to the client, written into one buffer that the connection sends when it is time.
//!
//! A message is begun with its type and a place for its length, and ended by filling the length in, so a row goes from the
//! store to the buffer without a copy between. Messages that are rare are encoded by `pgwire`.
//!
//! What has been written since a [`mark`](Replies::mark) can be taken back until it is sent: a statement that runs again
//! takes back the rows of its first run.

use crate::message::put_cstr;
use base::{Error, Format, Oid, Severity, TxnStatus};
use bytes::{Bytes, BytesMut};
use pgwire::messages::data::ParameterDescription;
use pgwire::messages::startup::{
    Authentication, BackendKeyData, NegotiateProtocolVersion, SecretKey,
};
use pgwire::messages::{Message, copy};

/// A column of a result, as RowDescription tells of it.
#[derive(Clone, Copy, Debug)]
pub struct Field<'a> {
    pub name: &'a str,
    /// The table that it comes from and its number there (from 1); 0 for an expression.
    pub table: Oid,
    pub attribute: i16,
    /// Of its type.
    pub oid: Oid,
    pub typlen: i16,
    pub typmod: i32,
    pub format: Format,
}

/// The replies not yet sent.
#[derive(Default)]
pub struct Replies {
    pub buf: Vec<u8>,
    /// Bytes sent since the connection began: a mark is a place in the whole stream.
    pub sent: u64,
}

impl Replies {
    /// Writes a message whose body `f` appends.
    #[inline]
    pub fn message<R>(&mut self, kind: u8, f: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let start = self.buf.len();
        self.buf.extend_from_slice(&[kind, 0, 0, 0, 0]);
        let r = f(&mut self.buf);
        let len = (self.buf.len() - start - 1) as u32;
        self.buf[start + 1..start + 5].copy_from_slice(&len.to_be_bytes());
        r
    }

    /// Writes a message without a body.
    #[inline]
    pub fn plain(&mut self, kind: u8) {
        self.buf.extend_from_slice(&[kind, 0, 0, 0, 4]);
    }

    /// Writes a message of `pgwire`.
    fn put(&mut self, m: &impl Message) {
        let mut b = BytesMut::new();
        m.encode(&mut b)
            .expect("our own messages stay within the limits");
        self.buf.extend_from_slice(&b);
    }

    /// The place where the next message will stand in the stream.
    pub fn mark(&self) -> u64 {
        self.sent + self.buf.len() as u64
    }

    /// Takes back what was written since the mark; false when some of it has been sent.
    pub fn rewind(&mut self, mark: u64) -> bool {
        let Some(keep) = mark.checked_sub(self.sent) else {
            return false;
        };
        self.buf.truncate(keep as usize);
        true
    }

    pub fn ready(&mut self, status: TxnStatus) {
        let s = match status {
            TxnStatus::Idle => b'I',
            TxnStatus::InTransaction => b'T',
            TxnStatus::Failed => b'E',
        };
        self.buf.extend_from_slice(&[b'Z', 0, 0, 0, 5, s]);
    }

    pub fn command_complete(&mut self, tag: &str) {
        self.message(b'C', |b| put_cstr(b, tag));
    }

    pub fn row_description<'a>(&mut self, fields: impl ExactSizeIterator<Item = Field<'a>>) {
        self.message(b'T', |b| {
            b.extend_from_slice(&(fields.len() as u16).to_be_bytes());
            for f in fields {
                put_cstr(b, f.name);
                b.extend_from_slice(&f.table.to_be_bytes());
                b.extend_from_slice(&f.attribute.to_be_bytes());
                b.extend_from_slice(&f.oid.to_be_bytes());
                b.extend_from_slice(&f.typlen.to_be_bytes());
                b.extend_from_slice(&f.typmod.to_be_bytes());
                b.extend_from_slice(&f.format.code().to_be_bytes());
            }
        });
    }

    pub fn parameter_description(&mut self, types: &[u32]) {
        self.put(&ParameterDescription::new(types.to_vec()));
    }

    /// The client is in.
    pub fn authentication_ok(&mut self) {
        self.put(&Authentication::Ok);
    }

    /// The client is to prove itself in one of these ways.
    pub fn sasl(&mut self, mechanisms: &[&str]) {
        let names = mechanisms.iter().map(|&m| m.to_owned()).collect();
        self.put(&Authentication::SASL(names));
    }

    pub fn sasl_continue(&mut self, data: impl Into<Bytes>) {
        self.put(&Authentication::SASLContinue(data.into()));
    }

    pub fn sasl_final(&mut self, data: impl Into<Bytes>) {
        self.put(&Authentication::SASLFinal(data.into()));
    }

    /// What a request to cancel must say.
    pub fn backend_key(&mut self, pid: i32, secret: i32) {
        self.put(&BackendKeyData::new(pid, SecretKey::I32(secret)));
    }

    /// The server speaks 3.0, and does not know these options.
    pub fn negotiate(&mut self, unknown: Vec<String>) {
        self.put(&NegotiateProtocolVersion::new(0, unknown));
    }

    /// NotificationResponse.
    pub fn notification(&mut self, n: &base::Notification) {
        self.message(b'A', |b| {
            b.extend_from_slice(&n.pid.to_be_bytes());
            put_cstr(b, &n.channel);
            put_cstr(b, &n.payload);
        });
    }

    pub fn parameter_status(&mut self, name: &str, value: &str) {
        self.message(b'S', |b| {
            put_cstr(b, name);
            put_cstr(b, value);
        });
    }

    pub fn copy_in(&mut self, columns: usize, format: Format) {
        let formats = vec![format.code(); columns];
        self.put(&copy::CopyInResponse::new(
            format.code() as i8,
            columns as i16,
            formats,
        ));
    }

    pub fn copy_out(&mut self, columns: usize, format: Format) {
        let formats = vec![format.code(); columns];
        self.put(&copy::CopyOutResponse::new(
            format.code() as i8,
            columns as i16,
            formats,
        ));
    }

    /// ErrorResponse or NoticeResponse, with the fields S V C M D H P W s t c n.
    pub fn error(&mut self, severity: Severity, e: &Error) {
        let f = e.fields();
        let notice = matches!(
            severity,
            Severity::Notice | Severity::Warning | Severity::Info
        );
        self.message(if notice { b'N' } else { b'E' }, |b| {
            let mut put = |kind: u8, s: &str| {
                if !s.is_empty() {
                    b.push(kind);
                    put_cstr(b, s);
                }
            };
            put(b'S', severity.name());
            put(b'V', severity.name());
            put(b'C', f.code.code());
            let message = if f.message.is_empty() {
                "error"
            } else {
                &f.message
            };
            put(b'M', message);
            put(b'D', &f.detail);
            put(b'H', &f.hint);
            if f.position > 0 {
                put(b'P', &f.position.to_string());
            }
            put(b'W', &f.context);
            put(b's', &f.schema);
            put(b't', &f.table);
            put(b'c', &f.column);
            put(b'n', &f.constraint);
            put(b'R', f.routine);
            b.push(0);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::SqlState;

    #[test]
    fn a_message_carries_its_length() {
        let mut r = Replies::default();
        r.command_complete("SELECT 1");
        assert_eq!(r.buf, b"C\0\0\0\x0dSELECT 1\0");
    }

    #[test]
    fn a_row_description_is_what_pgwire_reads() {
        use pgwire::messages::DecodeContext;
        use pgwire::messages::data::{FieldDescription, RowDescription};
        let columns = [
            Field {
                name: "größe",
                table: 16_400,
                attribute: 3,
                oid: 23,
                typlen: 4,
                typmod: -1,
                format: Format::Binary,
            },
            Field {
                name: "",
                table: 0,
                attribute: 0,
                oid: 25,
                typlen: -1,
                typmod: -1,
                format: Format::Text,
            },
        ];
        let mut r = Replies::default();
        r.row_description(columns.into_iter());
        let mut bytes = BytesMut::from(&r.buf[..]);
        let read = RowDescription::decode(&mut bytes, &DecodeContext::default());
        let fields = [
            FieldDescription::new("größe".into(), 16_400, 3, 23, 4, -1, 1),
            FieldDescription::new(String::new(), 0, 0, 25, -1, -1, 0),
        ];
        let want = RowDescription::new(fields.into());
        assert_eq!(read.expect("whole"), Some(want));
        assert!(bytes.is_empty());
    }

    #[test]
    fn what_is_not_sent_can_be_taken_back() {
        let mut r = Replies::default();
        r.plain(b'1');
        let mark = r.mark();
        r.plain(b'2');
        assert!(r.rewind(mark));
        assert_eq!(r.buf.len(), 5);
        r.sent += 5;
        r.buf.clear();
        r.plain(b'2');
        assert!(r.rewind(mark));
        assert!(r.buf.is_empty());
        r.sent += 1;
        assert!(!r.rewind(mark));
    }

    #[test]
    fn an_error_has_severity_code_and_fields() {
        let mut r = Replies::default();
        let e = Error::new(SqlState::UNIQUE_VIOLATION, "dup")
            .detail("d")
            .context("w")
            .table("public", "t")
            .constraint("t_pkey");
        r.error(Severity::Error, &e);
        let s = String::from_utf8_lossy(&r.buf[5..]).into_owned();
        assert_eq!(
            s,
            "SERROR\0VERROR\0C23505\0Mdup\0Dd\0Ww\0spublic\0tt\0nt_pkey\0\0"
        );
    }
}
