//! `row`: the first byte says how many columns, the next ones their types, the rest is the row.

use base::row::RowLayout;
use base::{Type, Value};

const TYPES: &[Type] = &[
    Type::Bool,
    Type::Int2,
    Type::Int4,
    Type::Int8,
    Type::Float8,
    Type::Numeric,
    Type::Text,
    Type::Bytea,
    Type::Uuid,
    Type::Date,
    Type::Time,
    Type::Timestamp,
    Type::Interval,
    Type::Jsonb,
    Type::TimeTz,
    Type::VarBit,
    Type::Inet,
    Type::MacAddr,
    Type::Int4Array,
    Type::TextArray,
];

const MOST_COLUMNS: usize = 24;

fn split(bytes: &[u8]) -> Option<(RowLayout, &[u8])> {
    let (&n, rest) = bytes.split_first()?;
    let n = n as usize % MOST_COLUMNS;
    let (types, row) = rest.split_at_checked(n)?;
    let types = types.iter().map(|t| TYPES[*t as usize % TYPES.len()]);
    Some((RowLayout::new(types), row))
}

pub fn run(bytes: &[u8]) -> bool {
    let Some((layout, row)) = split(bytes) else {
        return false;
    };
    if !layout.check(row) {
        return false;
    }
    let read = layout.row(row);
    let values = read.values();
    assert_eq!(
        values.len(),
        layout.len(),
        "a row has all columns of its layout"
    );
    let mut once = Vec::new();
    // Refused: what was read is larger than a row may be.
    if layout.encode(read.version(), &values, &mut once).is_err() {
        return false;
    }
    assert!(layout.check(&once), "what was written can be read");
    let mut twice = Vec::new();
    let again = layout.row(&once).values();
    layout
        .encode(read.version(), &again, &mut twice)
        .expect("it was written before");
    assert_eq!(once, twice, "reading and writing settles at once");
    true
}

pub fn seeds() -> Vec<Vec<u8>> {
    let seed = |types: &[u8], values: &[Value]| {
        let mut bytes = vec![types.len() as u8];
        bytes.extend(types);
        let (layout, _) = split(&bytes).expect("as many types as said");
        layout
            .encode(3, values, &mut bytes)
            .expect("the values fit their types");
        bytes
    };
    vec![
        seed(&[], &[]),
        seed(
            &[2, 6, 3],
            &[
                Value::Int4(7),
                Value::from("viola".to_string()),
                Value::Null,
            ],
        ),
        seed(
            &[0, 1, 4, 6, 6, 9],
            &[
                Value::Bool(true),
                Value::Int2(-1),
                Value::Float8(0.5),
                Value::from(String::new()),
                Value::from("x".repeat(300)),
                Value::Date(9000),
            ],
        ),
        seed(
            &[5, 14, 15, 13, 12],
            &[
                Value::Null,
                Value::Null,
                Value::Null,
                Value::Null,
                Value::Null,
            ],
        ),
    ]
}
