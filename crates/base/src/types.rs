//! The types that columns and expressions have, with PostgreSQL's numbers and names.
//!
//! Types that users make are [`UserType`]s. A domain is its base type here.
//!
//! Left out on purpose: range types; arrays of vectors and of records.

use crate::id::Oid;
use crate::user_type::UserType;

/// A scalar or array type. Catalog-only types (`name`, `"char"`, `oid`, `reg*`) exist so that catalog
/// relations have the types that drivers expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Numeric,
    Text,
    Varchar,
    Bpchar,
    /// PostgreSQL's one-byte `"char"`.
    Char,
    Name,
    Bytea,
    Uuid,
    Date,
    Time,
    TimeTz,
    Timestamp,
    TimestampTz,
    Interval,
    Bit,
    VarBit,
    Inet,
    Cidr,
    MacAddr,
    MacAddr8,
    /// Of the extension `citext`: no name means it unless the extension is there.
    Citext,
    Json,
    Jsonb,
    Oid,
    RegClass,
    RegType,
    RegProc,
    RegNamespace,
    /// Where a row stands: what `ctid` holds.
    Tid,
    /// What `xmin` and `xmax` hold.
    Xid,
    /// `int2vector` and such appear as text-like catalog types.
    Int2Vector,
    OidVector,
    PgNodeTree,
    AclItem,
    Void,
    Record,
    /// A literal whose type is not yet known.
    Unknown,
    BoolArray,
    Int2Array,
    Int4Array,
    Int8Array,
    Float8Array,
    NumericArray,
    TextArray,
    VarcharArray,
    NameArray,
    CharArray,
    OidArray,
    UuidArray,
    RegTypeArray,
    AclItemArray,
    Float4Array,
    BpcharArray,
    ByteaArray,
    DateArray,
    TimeArray,
    TimestampArray,
    TimestampTzArray,
    IntervalArray,
    JsonArray,
    JsonbArray,
    RegClassArray,
    RegProcArray,
    RegNamespaceArray,
    TidArray,
    XidArray,
    TimeTzArray,
    BitArray,
    VarBitArray,
    InetArray,
    CidrArray,
    MacAddrArray,
    MacAddr8Array,
    CitextArray,
    /// An enum or a composite type.
    User(UserType),
    /// An array of such values.
    UserArray(UserType),
}

/// A type with its modifier: the length of `varchar(n)`/`char(n)` (n), or precision and scale of
/// `numeric(p,s)`, packed as PostgreSQL's `atttypmod`; -1 for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ColumnType {
    pub ty: Type,
    pub typmod: i32,
}

impl ColumnType {
    /// The type without a modifier.
    pub const fn plain(ty: Type) -> ColumnType {
        ColumnType { ty, typmod: -1 }
    }
}

impl From<Type> for ColumnType {
    fn from(ty: Type) -> Self {
        ColumnType::plain(ty)
    }
}

macro_rules! types {
    ($($v:ident $oid:literal $name:literal $len:literal $array:literal $elem:expr;)*) => {
        impl Type {
            /// Every built-in type, in the order of the declaration.
            pub const ALL: &'static [Type] = &[$(Type::$v),*];

            /// PostgreSQL's type oid.
            pub const fn oid(self) -> Oid {
                match self {
                    $(Type::$v => $oid,)*
                    Type::User(u) => u.definition().oid,
                    Type::UserArray(u) => u.definition().array,
                }
            }

            /// `pg_type.typname`.
            pub const fn typname(self) -> &'static str {
                match self {
                    $(Type::$v => $name,)*
                    Type::User(u) => u.definition().name,
                    Type::UserArray(u) => u.definition().array_name,
                }
            }

            /// `pg_type.typlen`: bytes, -1 for varying length.
            pub const fn typlen(self) -> i16 {
                match self {
                    $(Type::$v => $len,)*
                    Type::User(u) if u.is_composite() => -1,
                    Type::User(_) => 4,
                    Type::UserArray(_) => -1,
                }
            }

            /// Oid of the array type over this one, 0 when there is none.
            pub const fn array_oid(self) -> Oid {
                match self {
                    $(Type::$v => $array,)*
                    Type::User(u) => u.definition().array,
                    Type::UserArray(_) => 0,
                }
            }

            /// The element type of an array type.
            pub const fn element(self) -> Option<Type> {
                match self {
                    $(Type::$v => $elem,)*
                    Type::User(_) => None,
                    Type::UserArray(u) => Some(Type::User(u)),
                }
            }

            /// The built-in type with this PostgreSQL oid; those of users are the schema's to know.
            pub const fn from_oid(oid: Oid) -> Option<Type> { match oid { $($oid => Some(Type::$v),)* _ => None } }
        }
    };
}

types! {
    Bool 16 "bool" 1 1000 None;
    Int2 21 "int2" 2 1005 None;
    Int4 23 "int4" 4 1007 None;
    Int8 20 "int8" 8 1016 None;
    Float4 700 "float4" 4 1021 None;
    Float8 701 "float8" 8 1022 None;
    Numeric 1700 "numeric" -1 1231 None;
    Text 25 "text" -1 1009 None;
    Varchar 1043 "varchar" -1 1015 None;
    Bpchar 1042 "bpchar" -1 1014 None;
    Char 18 "char" 1 1002 None;
    Name 19 "name" 64 1003 None;
    Bytea 17 "bytea" -1 1001 None;
    Uuid 2950 "uuid" 16 2951 None;
    Date 1082 "date" 4 1182 None;
    Time 1083 "time" 8 1183 None;
    TimeTz 1266 "timetz" 12 1270 None;
    Timestamp 1114 "timestamp" 8 1115 None;
    TimestampTz 1184 "timestamptz" 8 1185 None;
    Interval 1186 "interval" 16 1187 None;
    Bit 1560 "bit" -1 1561 None;
    VarBit 1562 "varbit" -1 1563 None;
    Inet 869 "inet" -1 1041 None;
    Cidr 650 "cidr" -1 651 None;
    MacAddr 829 "macaddr" 6 1040 None;
    MacAddr8 774 "macaddr8" 8 775 None;
    Citext 16001 "citext" -1 16002 None;
    Json 114 "json" -1 199 None;
    Jsonb 3802 "jsonb" -1 3807 None;
    Oid 26 "oid" 4 1028 None;
    RegClass 2205 "regclass" 4 2210 None;
    RegType 2206 "regtype" 4 2211 None;
    RegProc 24 "regproc" 4 1008 None;
    RegNamespace 4089 "regnamespace" 4 4090 None;
    Tid 27 "tid" 6 1010 None;
    Xid 28 "xid" 4 1011 None;
    Int2Vector 22 "int2vector" -1 1006 Some(Type::Int2);
    OidVector 30 "oidvector" -1 1013 Some(Type::Oid);
    PgNodeTree 194 "pg_node_tree" -1 0 None;
    AclItem 1033 "aclitem" 12 1034 None;
    Void 2278 "void" 4 0 None;
    Record 2249 "record" -1 2287 None;
    Unknown 705 "unknown" -2 0 None;
    BoolArray 1000 "_bool" -1 0 Some(Type::Bool);
    Int2Array 1005 "_int2" -1 0 Some(Type::Int2);
    Int4Array 1007 "_int4" -1 0 Some(Type::Int4);
    Int8Array 1016 "_int8" -1 0 Some(Type::Int8);
    Float8Array 1022 "_float8" -1 0 Some(Type::Float8);
    NumericArray 1231 "_numeric" -1 0 Some(Type::Numeric);
    TextArray 1009 "_text" -1 0 Some(Type::Text);
    VarcharArray 1015 "_varchar" -1 0 Some(Type::Varchar);
    NameArray 1003 "_name" -1 0 Some(Type::Name);
    CharArray 1002 "_char" -1 0 Some(Type::Char);
    OidArray 1028 "_oid" -1 0 Some(Type::Oid);
    UuidArray 2951 "_uuid" -1 0 Some(Type::Uuid);
    RegTypeArray 2211 "_regtype" -1 0 Some(Type::RegType);
    AclItemArray 1034 "_aclitem" -1 0 Some(Type::AclItem);
    Float4Array 1021 "_float4" -1 0 Some(Type::Float4);
    BpcharArray 1014 "_bpchar" -1 0 Some(Type::Bpchar);
    ByteaArray 1001 "_bytea" -1 0 Some(Type::Bytea);
    DateArray 1182 "_date" -1 0 Some(Type::Date);
    TimeArray 1183 "_time" -1 0 Some(Type::Time);
    TimestampArray 1115 "_timestamp" -1 0 Some(Type::Timestamp);
    TimestampTzArray 1185 "_timestamptz" -1 0 Some(Type::TimestampTz);
    IntervalArray 1187 "_interval" -1 0 Some(Type::Interval);
    JsonArray 199 "_json" -1 0 Some(Type::Json);
    JsonbArray 3807 "_jsonb" -1 0 Some(Type::Jsonb);
    RegClassArray 2210 "_regclass" -1 0 Some(Type::RegClass);
    RegProcArray 1008 "_regproc" -1 0 Some(Type::RegProc);
    RegNamespaceArray 4090 "_regnamespace" -1 0 Some(Type::RegNamespace);
    TidArray 1010 "_tid" -1 0 Some(Type::Tid);
    XidArray 1011 "_xid" -1 0 Some(Type::Xid);
    TimeTzArray 1270 "_timetz" -1 0 Some(Type::TimeTz);
    BitArray 1561 "_bit" -1 0 Some(Type::Bit);
    VarBitArray 1563 "_varbit" -1 0 Some(Type::VarBit);
    InetArray 1041 "_inet" -1 0 Some(Type::Inet);
    CidrArray 651 "_cidr" -1 0 Some(Type::Cidr);
    MacAddrArray 1040 "_macaddr" -1 0 Some(Type::MacAddr);
    MacAddr8Array 775 "_macaddr8" -1 0 Some(Type::MacAddr8);
    CitextArray 16002 "_citext" -1 0 Some(Type::Citext);
}

impl Type {
    /// The array type over this element type, where Canon has one.
    pub fn array_of(self) -> Option<Type> {
        if let Type::User(u) = self {
            return Some(Type::UserArray(u));
        }
        Type::from_oid(self.array_oid()).filter(|t| t.element() == Some(self))
    }

    /// Whether values are stored in a fixed number of bytes in a row (see [`crate::row`]); the bytes.
    pub const fn fixed_width(self) -> Option<usize> {
        match self {
            Type::Bool | Type::Char => Some(1),
            Type::Int2 => Some(2),
            Type::Int4
            | Type::Float4
            | Type::Date
            | Type::Oid
            | Type::RegClass
            | Type::RegType
            | Type::RegProc
            | Type::RegNamespace
            | Type::Xid => Some(4),
            Type::Int8 | Type::Float8 | Type::Time | Type::Timestamp | Type::TimestampTz => Some(8),
            Type::User(u) if u.is_composite() => None,
            // The rank of an enum's label.
            Type::User(_) => Some(8),
            Type::Uuid | Type::Interval => Some(16),
            Type::MacAddr => Some(6),
            Type::MacAddr8 => Some(8),
            // A moment and a zone.
            Type::TimeTz => Some(12),
            _ => None,
        }
    }

    /// A built-in type with values of the same size in a row. A dropped column has it, because its own type may be dropped, too.
    pub const fn bare(self) -> Type {
        match self {
            Type::User(u) if !u.is_composite() => Type::Int8,
            Type::User(_) | Type::UserArray(_) => Type::Bytea,
            ty => ty,
        }
    }

    /// The definition of a composite type.
    pub const fn composite(self) -> Option<UserType> {
        match self {
            Type::User(u) if u.is_composite() => Some(u),
            _ => None,
        }
    }

    /// The extension without which no name means this type.
    pub const fn extension(self) -> Option<&'static str> {
        match self {
            Type::Citext | Type::CitextArray => Some("citext"),
            _ => None,
        }
    }

    /// Whether values are character strings.
    pub const fn is_string(self) -> bool {
        matches!(
            self,
            Type::Text | Type::Varchar | Type::Bpchar | Type::Name | Type::Unknown
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oids_name_one_type_and_arrays_know_their_elements() {
        for &t in Type::ALL {
            assert_eq!(Type::from_oid(t.oid()), Some(t));
        }
        assert_eq!(Type::Int4.array_of(), Some(Type::Int4Array));
        assert_eq!(Type::Jsonb.array_of(), Some(Type::JsonbArray));
        assert_eq!(Type::Void.array_of(), None);
    }
}
