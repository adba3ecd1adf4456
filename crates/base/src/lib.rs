//! What every room of the house agrees on: ids, positions, values, the bytes of rows, keys and log
//! records, the schema as data, a transaction's footprint, and the error that clients see.
//!
//! There is no I/O, no clock and no lock in this crate. What a thread keeps is the flag of the statement that it runs (`cancel`).

pub mod cancel;
pub mod candidate;
pub mod column_set;
pub mod error;
pub mod footprint;
pub mod id;
pub mod key;
mod key_bytes;
pub mod membership;
pub mod memory;
pub mod modifier;
pub mod notification;
pub mod numeric;
pub mod packed;
pub mod pmap;
pub mod position;
pub mod reading;
pub mod record;
pub mod redefined;
pub mod region;
pub mod reply;
pub mod rights;
mod rounding;
pub mod row;
pub mod schema;
pub mod split;
pub mod split_records;
pub mod stored_settings;
pub mod text;
pub mod topology;
pub mod types;
pub mod units;
pub mod user_type;
pub mod value;

pub use candidate::{Candidate, Isolation};
pub use column_set::ColumnSet;
pub use error::{Error, Result, SqlState};
pub use footprint::{Footprint, KeyRange};
pub use id::{ColumnIdx, Oid, RelId};
pub use notification::Notification;
pub use numeric::Numeric;
pub use packed::{Packed, PackedValue};
pub use pmap::PMap;
pub use position::{Ceiling, CommitWait, MAX_TERM, Position, Watermark, Watermarks};
pub use reading::{Consistency, ReadPolicy, ReadWant};
pub use reply::{Format, Severity, TxnStatus};
pub use row::{RowLayout, RowRef};
pub use text::{bad_text, text};
pub use topology::{Committing, Drawn, Work};
pub use types::{ColumnType, Type};
pub use user_type::UserType;
pub use value::{Array, Interval, Row, Value};
