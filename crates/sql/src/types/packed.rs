//! Casts of values that are kept as bytes: bit strings, addresses, times with a zone. Their forms stand in [`base::packed`].

use super::datetime::{USECS_PER_DAY, USECS_PER_SEC, is_infinite};
use super::{OutputSettings, out_of_range};
use base::packed::{bits, inet, mac, timetz};
use base::{Error, Packed, PackedValue, Result, SqlState, Type, Value};

/// A number as `bit(n)`: its low bits. Without a length there is one.
pub(super) fn bits_of_number(x: i64, typmod: i32) -> Value {
    let form = bits::of_number(x, typmod.max(1) as usize);
    Value::packed(Packed::Bit, form)
}

/// What an explicit cast to a type with this modifier makes of a value of the type.
pub(super) fn cut(v: &PackedValue, typmod: i32) -> Result<Value> {
    let kind = v.kind();
    let form: Box<[u8]> = v.form().into();
    let form = match kind {
        Packed::Bit | Packed::VarBit if typmod > 0 => {
            bits::cut(kind == Packed::Bit, form, typmod as usize)
        }
        _ => kind.fit(form, typmod)?,
    };
    Ok(Value::packed(kind, form))
}

/// Appends what a cast to text says. An address has its mask there, that of a single host, too.
pub(crate) fn write_as_text(v: &PackedValue, out: &mut String) {
    match v.kind() {
        Packed::Inet | Packed::Cidr => inet::expect(v.form()).write(true, out),
        kind => kind.write_text(v.form(), out),
    }
}

/// A value of another type; `None` where there is no such cast.
pub(super) fn convert(v: &PackedValue, to: Type) -> Result<Option<Value>> {
    let form = v.form();
    let packed = |form: &[u8]| Some(Value::packed(Packed::of(to).expect("such a type"), form));
    Ok(match (v.kind(), to) {
        (_, t) if t.is_string() => {
            let mut s = String::new();
            write_as_text(v, &mut s);
            Some(Value::from(s))
        }
        (Packed::Bit, Type::Int4) if bits::len(form) > 32 => return Err(out_of_range(to)),
        (Packed::Bit, Type::Int8) if bits::len(form) > 64 => return Err(out_of_range(to)),
        (Packed::Bit, Type::Int4) => Some(Value::Int4(bits::to_number(form) as u32 as i32)),
        (Packed::Bit, Type::Int8) => Some(Value::Int8(bits::to_number(form) as i64)),
        (Packed::Bit, Type::VarBit) | (Packed::VarBit, Type::Bit) => packed(form),
        (Packed::Cidr, Type::Inet) => packed(form),
        (Packed::Inet, Type::Cidr) => packed(&inet::expect(form).network().form()),
        (Packed::MacAddr, Type::MacAddr8) => {
            packed(&mac::widen(form.try_into().expect("six bytes")))
        }
        (Packed::MacAddr8, Type::MacAddr) => match *form {
            [a, b, c, 0xff, 0xfe, d, e, f] => packed(&[a, b, c, d, e, f]),
            _ => {
                let what = "macaddr8 data out of range to convert to macaddr";
                return Err(
                    Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, what).hint(
                        "Only addresses that have FF and FE as values in the 4th and 5th bytes from the left, for example xx:xx:xx:ff:fe:xx:xx:xx, are eligible to be converted from macaddr8 to macaddr.",
                    ),
                );
            }
        },
        (Packed::TimeTz, Type::Time) => Some(Value::Time(timetz::parts(form).0)),
        _ => None,
    })
}

/// A time in the session's zone as it is today; a moment's time there. NULL for the infinite moments.
pub(super) fn with_zone(v: &Value, settings: &OutputSettings) -> Value {
    let zone = &settings.timezone;
    let (time, east) = match v {
        Value::Time(t) => {
            let midnight = zone.local(settings.now).div_euclid(USECS_PER_DAY) * USECS_PER_DAY;
            (*t, zone.offset_of_local(midnight + t))
        }
        Value::TimestampTz(t) if is_infinite(*t) => return Value::Null,
        Value::TimestampTz(t) => {
            let east = zone.offset_at(*t);
            (
                (t + i64::from(east) * USECS_PER_SEC).rem_euclid(USECS_PER_DAY),
                east,
            )
        }
        v => panic!("{v:?} has no zone"),
    };
    Value::packed(Packed::TimeTz, timetz::form(time, -east))
}
