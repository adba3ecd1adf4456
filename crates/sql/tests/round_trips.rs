//! Properties of values: what is written, as text or in binary, reads back the same; encoded keys sort as values do.

use base::packed::{bits, inet::Inet, timetz};
use base::value::{Array, Interval};
use base::{ColumnType, Numeric, Packed, Type, Value, key, row};
use proptest::prelude::*;
use sql::types::datetime::{END_DATE, END_TIMESTAMP, MIN_DATE, MIN_TIMESTAMP, USECS_PER_DAY};
use sql::types::zone::Zone;
use sql::types::{DateOrder, DateStyle, IntervalStyle, OutputSettings, binary, numeric, ops, text};

fn numerics() -> impl Strategy<Value = Value> {
    prop_oneof![
        1 => Just(Value::from(Numeric::NaN)),
        1 => Just(Value::from(Numeric::Infinity)),
        1 => Just(Value::from(Numeric::NegInfinity)),
        20 => (any::<i128>(), 0..40i64).prop_map(|(n, s)| Value::from(numeric::from_scaled(n.into(), s))),
        10 => (-1000..1000i64, 0..4i64).prop_map(|(n, s)| Value::from(numeric::from_scaled(n.into(), s))),
        5 => (any::<i64>(), -30..0i64).prop_map(|(n, s)| Value::from(numeric::from_scaled(n.into(), s))),
    ]
}

fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ -~]{0,12}",
        "[a-c{}\",\\\\ ]{0,6}",
        "\\PC{0,8}",
        Just("NULL".to_string())
    ]
}

fn jsons() -> impl Strategy<Value = Value> {
    use sql::types::json::Json;
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Bool),
        (any::<i64>(), 0..6i64).prop_map(|(n, s)| Json::Number(numeric::from_scaled(n.into(), s))),
        texts().prop_map(Json::String),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::Array),
            prop::collection::vec((texts(), inner), 0..4).prop_map(Json::object),
        ]
    })
    .prop_map(Json::into_value)
}

fn scalar(ty: Type) -> BoxedStrategy<Value> {
    match ty {
        Type::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        Type::Int2 => any::<i16>().prop_map(Value::Int2).boxed(),
        Type::Int4 => any::<i32>().prop_map(Value::Int4).boxed(),
        Type::Int8 => any::<i64>().prop_map(Value::Int8).boxed(),
        Type::Float4 => any::<u32>()
            .prop_map(|b| Value::Float4(f32::from_bits(b)))
            .boxed(),
        Type::Float8 => any::<u64>()
            .prop_map(|b| Value::Float8(f64::from_bits(b)))
            .boxed(),
        Type::Numeric => numerics().boxed(),
        Type::Text => texts().prop_map(Value::from).boxed(),
        Type::Bytea => prop::collection::vec(any::<u8>(), 0..12)
            .prop_map(|b| Value::Bytea(b.into()))
            .boxed(),
        Type::Uuid => any::<[u8; 16]>()
            .prop_map(|b| Value::Uuid(Box::new(b)))
            .boxed(),
        Type::Date => prop_oneof![
            10 => (MIN_DATE as i32..END_DATE as i32).prop_map(Value::Date),
            10 => (-20_000..20_000).prop_map(Value::Date),
            1 => prop_oneof![Just(i32::MIN), Just(i32::MAX)].prop_map(Value::Date),
        ]
        .boxed(),
        Type::Time => (0..=USECS_PER_DAY).prop_map(Value::Time).boxed(),
        Type::Timestamp => moments().prop_map(Value::Timestamp).boxed(),
        Type::TimestampTz => moments().prop_map(Value::TimestampTz).boxed(),
        Type::Interval => (
            -100_000..100_000i32,
            -100_000..100_000i32,
            -1_000_000_000_000_000..1_000_000_000_000_000i64,
        )
            .prop_map(|(months, days, micros)| {
                Value::Interval(Box::new(Interval {
                    months,
                    days,
                    micros,
                }))
            })
            .boxed(),
        Type::VarBit => prop::collection::vec(any::<bool>(), 0..40)
            .prop_map(|b| Value::packed(Packed::VarBit, bits::collect(b.into_iter())))
            .boxed(),
        Type::Inet => (any::<bool>(), any::<u8>(), any::<u128>())
            .prop_map(|(v6, bits, a)| {
                let (width, address) = if v6 { (128, a) } else { (32, a as u32 as u128) };
                let bits = bits % (width + 1);
                let inet = Inet { v6, bits, address };
                Value::packed(Packed::Inet, inet.form())
            })
            .boxed(),
        Type::MacAddr => any::<[u8; 6]>()
            .prop_map(|b| Value::packed(Packed::MacAddr, b))
            .boxed(),
        Type::TimeTz => (0..=USECS_PER_DAY, -57_599..57_599i32)
            .prop_map(|(local, west)| Value::packed(Packed::TimeTz, timetz::form(local, west)))
            .boxed(),
        Type::Jsonb => jsons().boxed(),
        Type::Oid => any::<u32>().prop_map(Value::Oid).boxed(),
        Type::Int4Array | Type::TextArray | Type::NumericArray => arrays(ty).boxed(),
        t => panic!("{t:?}"),
    }
}

fn moments() -> impl Strategy<Value = i64> {
    prop_oneof![
        10 => MIN_TIMESTAMP..END_TIMESTAMP,
        10 => -2_000_000_000_000_000..2_000_000_000_000_000i64,
        1 => prop_oneof![Just(i64::MIN), Just(i64::MAX)],
    ]
}

fn arrays(ty: Type) -> impl Strategy<Value = Value> {
    let element = ty.element().expect("an array type");
    let item = prop_oneof![4 => scalar(element), 1 => Just(Value::Null)];
    (1..4usize, 1..3usize, -2..3i32).prop_flat_map(move |(n, m, lower)| {
        prop::collection::vec(item.clone(), n * m).prop_map(move |items| {
            let dims = if m == 1 {
                vec![(n as i32, lower)]
            } else {
                vec![(n as i32, lower), (m as i32, 1)]
            };
            Value::Array(Box::new(Array {
                element,
                dims,
                items,
            }))
        })
    })
}

const TYPES: &[Type] = &[
    Type::Bool,
    Type::Int2,
    Type::Int4,
    Type::Int8,
    Type::Float4,
    Type::Float8,
    Type::Numeric,
    Type::Text,
    Type::Bytea,
    Type::Uuid,
    Type::Date,
    Type::Time,
    Type::Timestamp,
    Type::TimestampTz,
    Type::Interval,
    Type::Jsonb,
    Type::VarBit,
    Type::Inet,
    Type::MacAddr,
    Type::TimeTz,
    Type::Oid,
    Type::Int4Array,
    Type::TextArray,
    Type::NumericArray,
];

fn typed() -> impl Strategy<Value = (Type, Value)> {
    prop::sample::select(TYPES).prop_flat_map(|t| (Just(t), scalar(t)))
}

fn pair() -> impl Strategy<Value = (Type, Value, Value)> {
    prop::sample::select(TYPES).prop_flat_map(|t| (Just(t), scalar(t), scalar(t)))
}

/// The same value to the last bit: its stored form (all NaNs are one).
fn stored(ty: Type, v: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match v {
        Value::Float8(x) if x.is_nan() => row::encode_value(ty, &Value::Float8(f64::NAN), &mut out),
        Value::Float4(x) if x.is_nan() => row::encode_value(ty, &Value::Float4(f32::NAN), &mut out),
        v => row::encode_value(ty, v, &mut out),
    }
    out
}

fn settings() -> impl Strategy<Value = OutputSettings> {
    let styles = [
        DateStyle::Iso,
        DateStyle::Sql,
        DateStyle::Postgres,
        DateStyle::German,
    ];
    let intervals = [
        IntervalStyle::Postgres,
        IntervalStyle::PostgresVerbose,
        IntervalStyle::Iso8601,
    ];
    (
        prop::sample::select(styles.to_vec()),
        any::<bool>(),
        prop::sample::select(intervals.to_vec()),
        prop::sample::select(vec!["UTC", "+05:30", "-08"]),
    )
        .prop_map(|(datestyle, dmy, intervalstyle, zone)| OutputSettings {
            datestyle,
            date_order: if dmy || datestyle == DateStyle::German {
                DateOrder::Dmy
            } else {
                DateOrder::Mdy
            },
            intervalstyle,
            timezone: Zone::parse(zone).unwrap(),
            ..OutputSettings::default()
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn text_reads_back((ty, v) in typed(), s in settings()) {
        let t = text::to_string(&v, ty, &s);
        let back = text::input(&t, ColumnType::plain(ty), &s);
        prop_assert!(back.is_ok(), "{t}: {:?}", back);
        prop_assert_eq!(stored(ty, &back.unwrap()), stored(ty, &v), "{}", t);
    }

    #[test]
    fn binary_reads_back((ty, v) in typed()) {
        let mut b = Vec::new();
        binary::encode(&v, ty, &mut b);
        let back = binary::decode(&b, ty);
        prop_assert!(back.is_ok(), "{:?}", back);
        prop_assert_eq!(stored(ty, &back.unwrap()), stored(ty, &v));
    }

    #[test]
    fn binary_input_never_panics(ty in prop::sample::select(TYPES), b in prop::collection::vec(any::<u8>(), 0..40)) {
        if let Ok(v) = binary::decode(&b, ty) {
            text::to_string(&v, ty, &OutputSettings::default());
        }
    }

    #[test]
    fn text_input_never_panics(ty in prop::sample::select(TYPES), s in "[-+0-9a-zA-Z:./ {}\\[\\]\",é]{0,24}") {
        if let Ok(v) = text::input(&s, ColumnType::plain(ty), &OutputSettings::default()) {
            text::to_string(&v, ty, &OutputSettings::default());
        }
    }

    #[test]
    fn keys_sort_as_values((ty, a, b) in pair()) {
        // jsonb has no index: its keys serve equality (hash joins, DISTINCT) only.
        prop_assume!(ty != Type::Jsonb);
        let enc = |v: &Value| {
            let mut out = Vec::new();
            key::encode_value(v, &mut out);
            out
        };
        prop_assert_eq!(enc(&a).cmp(&enc(&b)), ops::compare(&a, &b), "{:?} {:?}", a, b);
    }
}
