-- integers
1 + 1
2147483647 + 1
-2147483648 - 1
9223372036854775807 + 1
32767::int2 + 1::int2
7 / 2
-7 / 2
-7 % 3
5 % 0
1 / 0
2 ^ 10
5 & 3
5 | 3
5 # 3
~ 5
1 << 4
-16 >> 2
@ -5
- (-2147483648)
-32768::int2
abs(-5)
mod(11, 4)
gcd(1071, 462)
lcm(1071, 462)
factorial(20)
3 = 3::int8
1 < 2.5
2 > 1.5::float8
'5' + 3
'5' || 3
1 || 'a'
'x'::text || 5::numeric
-- numeric
1.10 + 2.005
1.10 * 2.00
1 / 3.0
10 / 3.0
2.0 / 3
1e10 / 3
0.00001 / 3
123456789.123 / 0.0001
100.00 / 3
1.5 % 0.4
-7.5 % 2
5.0 / 0
1e400 / 1e-20 > 0
round(2.5)
round(-2.5)
round(2.567, 2)
round(1550, -2)
trunc(2.567, 1)
trunc(-2.5)
ceil(-1.5)
floor(-1.5)
ceil(2.000)
sign(-3.5)
sqrt(2.0)
sqrt(0.0001)
sqrt(123456789.987)
sqrt(-1.0)
sqrt(2)
exp(1.0)
exp(-10.5)
exp(30.2)
ln(10.0)
ln(0.5)
ln(0)
ln(1.0001)
log(100.0)
log(2.0, 64.0)
log(2, 10)
log(0.001)
power(2.0, 0.5)
power(2, 3)
power(9.5, 3)
power(0.3, 10)
power(2.5, -3.2)
power(10.0, 20)
2.0 ^ 100
0.0 ^ -1
(-8.0) ^ 0.333
(-8.0) ^ 3
div(7.5, 2)
scale(8.4100)
min_scale(8.4100)
trim_scale(8.4100)
width_bucket(5.35, 0.024, 10.06, 5)
'NaN'::numeric = 'NaN'::numeric
'NaN'::numeric > 'Infinity'::numeric
'Infinity'::numeric - 'Infinity'::numeric
'Infinity'::numeric * 0
1 / 'Infinity'::numeric
0.1::numeric(10,5)
123.456::numeric(5,2)
999.999::numeric(5,2)
1234.5::numeric(5,-2)
1e5::numeric
1.0e-5
.5
5.
'  12.50  '::numeric
'12a'::numeric
'1e3'::numeric
'-0.0'::numeric
-0.0
'1_000'::numeric
-- floats
0.1::float8 + 0.2::float8
1e308::float8 * 10
1e-308::float8 / 1e10
1::float8 / 0
1.0::float4 / 3
0.1::float4
0.1::float4::float8
'nan'::float8 = 'nan'::float8
'infinity'::float8 - 'infinity'::float8
1e15::float8
1e14::float8
123456.7::float4
1e-5::float8
100000::float4
1000000::float4
2.5::float8::int4
3.5::float8::int4
-2.5::float8::int4
1e10::float8::int4
1.5::float4::numeric
1e20::float8::numeric
123456789012.345678::float8::numeric
round(2.5::float8)
power(2::float8, 0.5)
power(-8::float8, 1.0/3)
sqrt(-1::float8)
exp(1000::float8)
ln(-1::float8)
degrees(0.5)
sin(1)
atan2(1, 2)
acos(2)
cot(0.5)
|/ 25.0
sign(-2.5::float8)
trunc(-2.7::float8)
-- casts
'42'::int4
' 42 '::int4
'4x'::int4
''::int4
'99999999999'::int4
'32768'::int2
'-9223372036854775808'::int8
'9223372036854775808'::int8
3.7::int4
-0.5::numeric::int4
40000::int2
5::bool
true::int4
true::text
't'::bool
'tru'::bool
'o'::bool
'maybe'::bool
'abc'::varchar(2)
'abc  '::char(5) || 'x'
'abc'::char(2)
'ab'::char(5) = 'ab   '::char(3)
length('ab   '::char(5))
'abcdef'::name
65::"char"
'A'::"char"::int4
'\xDEADbeef'::bytea
'a\000b'::bytea
'\xzz'::bytea
'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'::uuid
'{a0eebc999c0b4ef8bb6d6bb9bd380a11}'::uuid
'nope'::uuid
12::text || 'a'
1.50::text
'2020-02-30'::date
'infinity'::date
1::date
'1'::json::jsonb
'{"a": 1, "a": 2}'::jsonb
'[1, 2'::jsonb
'"a\u00e9"'::jsonb
'{"b": [1.10, true, null], "aa": {}}'::jsonb
'1'::jsonb::int4
'"x"'::jsonb::int4
'1.6'::jsonb::int4
'true'::jsonb::bool
'16384'::oid
-1::oid
'int4'::regtype
'character varying'::regtype
1::int8::oid
'{1,2,3}'::int4[]
'{1,"2",NULL}'::text[]
'{a,"b c","d\"e",""}'::text[]
'{{1,2},{3,4}}'::int4[]
'{{1,2},{3}}'::int4[]
'{1,2'::int4[]
'[0:2]={1,2,3}'::int4[]
'{1,x}'::int4[]
'{}'::int4[]
' { 1 , 2 } '::int4[]
'{1,,2}'::int4[]
'{1,2}'::int4[]::text[]
'{1,2}'::int4[]::text
'{1.5,2.5}'::numeric[]::int4[]
-- strings
'abc' || 'def'
'abc' < 'abd'
'a' < 'B'
'abc' = 'abc '
length('höhe')
octet_length('höhe')
bit_length('abc')
upper('abc')
lower('ABC')
initcap('hello wORLD o''neil x2y')
substr('alphabet', 3)
substr('alphabet', 3, 2)
substr('alphabet', -2, 5)
substr('alphabet', 0)
substr('alphabet', 3, -1)
substring('foobar', 'o.b')
substring('foobar', 'o(.)b')
left('abcde', 2)
left('abcde', -2)
right('abcde', 2)
right('abcde', -2)
lpad('hi', 5)
lpad('hi', 5, 'xy')
lpad('hello', 2)
rpad('hi', 5, 'xy')
rpad('hi', -1)
ltrim('zzzytest', 'xyz')
rtrim('testxxzx', 'xyz')
btrim('  a  ')
replace('abcdefabcdef', 'cd', 'XX')
replace('abc', '', 'x')
translate('12345', '143', 'ax')
repeat('Pg', 4)
reverse('abcde')
strpos('high', 'ig')
strpos('high', '')
split_part('abc~@~def~@~ghi', '~@~', 2)
split_part('abc,def,ghi', ',', -2)
split_part('abc', ',', 0)
split_part('', ',', 1)
concat('a', 1, NULL, true, 1.50)
concat_ws(',', 'abcde', 2, NULL, 22)
format('Hello %s, %1$s', 'World')
format('%I %L', 'a b', 'it''s')
format('%s', NULL)
format('%L', NULL)
format('%-10s|%10s|', 'a', 'b')
format('%x', 1)
format('%s')
format('%%')
chr(65)
chr(0)
ascii('x')
ascii('é')
md5('abc')
sha256('abc')
encode('abc', 'hex')
encode('\x001234ff'::bytea, 'base64')
encode('\x001234ff'::bytea, 'escape')
decode('AAEC', 'base64')
decode('zz', 'hex')
to_hex(2147483647)
to_hex(-1::int8)
quote_ident('Foo bar')
quote_ident('foo')
quote_ident('table')
quote_literal('a''b\c')
quote_nullable(NULL)
starts_with('alphabet', 'alph')
overlay('Txxxxas' placing 'hom' from 2 for 4)
position('om' in 'Thomas')
trim(both 'x' from 'xTomxx')
substring('Thomas' from 2 for 3)
get_byte('\x1234567890'::bytea, 4)
length('\x1234'::bytea)
'\x12'::bytea || '\x34'::bytea
-- patterns
'abc' like 'a%'
'abc' like '_b_'
'abc' like 'c'
'a%c' like 'a\%c'
'abc' ilike 'A%'
'abc' not like 'x%'
'abc' like '%b%'
'abc' like NULL
'abc' ~ '^a.c$'
'abc' ~ 'B'
'abc' ~* 'B'
'abc' !~ 'x'
'abc' !~* 'ABC'
'a.c' ~ 'a\.c'
'foo bar' ~ '\mbar'
'a1' ~ '^[[:alpha:]][[:digit:]]$'
'x' ~ '('
regexp_replace('Thomas', '.[mN]a.', 'M')
regexp_replace('foobarbaz', 'b..', 'X', 'g')
regexp_replace('foobarbaz', 'b(..)', 'X\1Y', 'g')
regexp_replace('hello', 'L', 'x', 'gi')
regexp_replace('A PostgreSQL function', 'a|e|i|o|u', 'X', 1, 0, 'i')
regexp_replace('abc', 'b', '[\&]')
regexp_match('foobarbequebaz', '(bar)(beque)')
regexp_match('foobarbequebaz', 'bar.*que')
regexp_match('abc', 'x')
regexp_split_to_array('hello world', '\s+')
regexp_split_to_array('hello', '')
regexp_count('ABCABCAXYaxy', 'A.', 1, 'i')
regexp_like('Hello World', 'world$', 'i')
regexp_substr('ABCDEF', 'c(.)(..)', 1, 1, 'i')
string_to_array('xx~~yy~~zz', '~~')
string_to_array('xx~~yy~~zz', '~~', 'yy')
string_to_array('abc', NULL)
string_to_array('', ',')
array_to_string('{1,2,NULL,5}'::int4[], ',', '*')
array_to_string('{1,2,NULL,5}'::int4[], ',')
-- arrays
'{1,2}'::int4[] || '{3}'::int4[]
'{1,2}'::int4[] || 3
0 || '{1,2}'::int4[]
'{{1,2}}'::int4[] || '{3,4}'::int4[]
'{1,2}'::int4[] = '{1,2}'::int4[]
'{1,2}'::int4[] < '{1,3}'::int4[]
'{1,2,3}'::int4[] @> '{1,3}'::int4[]
'{1,2,3}'::int4[] <@ '{1,3}'::int4[]
'{1,2,3}'::int4[] && '{3,9}'::int4[]
array_length('{1,2,3}'::int4[], 1)
array_length('{}'::int4[], 1)
array_upper('{1,2,3}'::int4[], 1)
array_lower('[0:2]={1,2,3}'::int4[], 1)
cardinality('{{1,2},{3,4}}'::int4[])
array_dims('{{1,2},{3,4}}'::int4[])
array_ndims('{{1,2},{3,4}}'::int4[])
array_append('{1,2}'::int4[], 3)
array_prepend(1, '{2,3}'::int4[])
array_cat('{1,2}'::int4[], '{3,4}'::int4[])
array_position('{sun,mon,tue}'::text[], 'mon')
array_positions('{1,2,1}'::int4[], 1)
array_remove('{1,2,3,2}'::int4[], 2)
array_replace('{1,2,5,4}'::int4[], 5, 3)
array_fill(7, '{3}'::int4[], '{2}'::int4[])
trim_array('{1,2,3,4}'::int4[], 2)
-- dates and times
'1999-01-08'::date
'January 8, 1999'::date
'1/8/1999'::date
'1/18/1999'::date
'18/1/1999'::date
'1999-Jan-08'::date
'Jan-08-1999'::date
'08-Jan-99'::date
'19990108'::date
'990108'::date
'1999.008'::date
'J2451187'::date
'January 8, 99 BC'::date
'0000-01-01'::date
'2021-02-29'::date
'5874898-01-01'::date
'garbage'::date
'epoch'::date
'04:05:06.789'::time
'04:05'::time
'040506'::time
'04:05 AM'::time
'04:05 PM'::time
'12:00 AM'::time
'24:00:00'::time
'24:00:01'::time
'25:00'::time
'23:59:60'::time
'04:05:06.789'::time(1)
'allballs'::time
'1999-01-08 04:05:06'::timestamp
'1999-01-08T04:05:06Z'::timestamptz
'1999-01-08 04:05:06 -8:00'::timestamptz
'1999-01-08 04:05:06-08'::timestamptz
'January 8 04:05:06 1999 PST'::timestamptz
'1999-01-08 04:05:06 America/New_York'::timestamptz
'1999-07-08 04:05:06 Europe/Berlin'::timestamptz
'1999-01-08 04:05:06.1234567'::timestamp
'1999-01-08 04:05:06.789'::timestamp(0)
'20200304 050607'::timestamp
'20200304T050607'::timestamp
'2020-03-04 05:06:07 BC'::timestamp
'294277-01-01'::timestamp
'4714-01-01 BC'::timestamp
'infinity'::timestamp
'-infinity'::timestamptz
'2020-03-04 05:06:07+25'::timestamptz
'Sat Mar 04 05:06:07 2000'::timestamp
'1 year 2 months 3 days 4 hours 5 minutes 6 seconds'::interval
'1-2'::interval
'3 4:05:06'::interval
'P1Y2M3DT4H5M6S'::interval
'PT36H'::interval
'P2W'::interval
'1 year ago'::interval
'-1 day +02:03'::interval
'1.5 years'::interval
'1.5 months'::interval
'2.5 weeks'::interval
'1.25 days'::interval
'1.5 hours'::interval
'5'::interval
'1 day 25:00'::interval
'100 years -1 mon'::interval
'1 century'::interval
'2 decades'::interval
'500 ms'::interval
'1 fortnight'::interval
''::interval
'1 mon 1 mon'::interval
'00:00:00.0000001'::interval
'2001-09-28'::date + 7
'2001-09-28'::date + '1 hour'::interval
'2001-09-28'::date + '03:00'::time
'2001-10-01'::date - '2001-09-28'::date
'2001-10-01'::date - 7
'2001-09-28 01:00'::timestamp + '23 hours'::interval
'2001-01-31'::timestamp + '1 month'::interval
'2001-09-29 03:00'::timestamp - '2001-07-27 12:00'::timestamp
'2001-09-29 03:00'::timestamp - '2001-10-27 12:00'::timestamp
'01:00'::time + '3 hours'::interval
'05:00'::time - '03:00'::time
'05:00'::time - '8 hours'::interval
- '23 hours'::interval
900 * '1 second'::interval
3.5 * '1 hour'::interval
'1 hour'::interval / 1.5
'1 month'::interval / 3
'1 mon 10 days'::interval * 1.7
'1 day'::interval - '1 hour'::interval
'1 day'::interval = '24 hours'::interval
'1 month'::interval > '29 days'::interval
'2020-01-01'::date = '2020-01-01 00:00'::timestamp
'2020-01-01'::date < '2020-01-01 00:00:01+00'::timestamptz
'2020-01-01 00:00'::timestamp < '2020-01-02'::date
date_trunc('hour', '2001-02-16 20:38:40'::timestamp)
date_trunc('month', '2001-02-16 20:38:40+00'::timestamptz)
date_trunc('week', '2001-02-18 20:38:40'::timestamp)
date_trunc('millennium', '2000-12-31'::timestamp)
date_trunc('century', '0055-08-10 BC'::timestamp)
date_trunc('decade', '1993-12-25'::timestamp)
date_trunc('day', '2001-02-16 20:38:40+00'::timestamptz, 'Australia/Sydney')
date_trunc('hour', '3 days 02:47:33'::interval)
date_trunc('foo', '2001-02-16'::timestamp)
extract('year' from '2001-02-16'::date)
extract(epoch from '2001-02-16 20:38:40.12+00'::timestamptz)
extract(second from '2001-02-16 20:38:40.12'::timestamp)
extract(milliseconds from '2001-02-16 20:38:40.12'::timestamp)
extract(epoch from '1 year 2 mons 3 days'::interval)
extract(century from '0001-12-31 BC'::date)
extract(week from '2006-01-01'::date)
extract(isoyear from '2006-01-01'::date)
extract(julian from '2006-01-01 12:00'::timestamp)
extract(hour from '2001-02-16'::date)
extract(dow from '2001-02-16'::date)
date_part('day', '2001-02-16 20:38:40'::timestamp)
date_part('second', '28.5 seconds'::interval)
date_part('epoch', '2001-02-16'::date)
age('2001-04-10'::timestamp, '1957-06-13'::timestamp)
age('1957-06-13'::timestamp, '2001-04-10'::timestamp)
age('2004-02-29 10:00'::timestamp, '2003-03-31 12:00'::timestamp)
make_date(2013, 7, 15)
make_date(2013, 2, 30)
make_date(-44, 3, 15)
make_time(8, 15, 23.5)
make_timestamp(2013, 7, 15, 8, 15, 23.5)
make_interval(1, 2, 3, 4)
justify_days('35 days'::interval)
justify_hours('27 hours'::interval)
justify_interval('1 mon -1 hour'::interval)
isfinite('infinity'::date)
isfinite('4 hours'::interval)
'2001-02-16 20:38:40'::timestamp at time zone 'America/Denver'
'2001-02-16 20:38:40-05'::timestamptz at time zone 'America/Denver'
'2001-07-16 20:38:40'::timestamptz at time zone 'Europe/Berlin'
timezone('+02:00'::interval, '2001-02-16 20:38:40+00'::timestamptz)
to_timestamp(1284352323)
to_timestamp('05 Dec 2000', 'DD Mon YYYY')
to_timestamp('2000-12-05 15:16:17.123', 'YYYY-MM-DD HH24:MI:SS.MS')
to_timestamp('12/05/00 03:04 PM', 'MM/DD/YY HH12:MI AM')
to_date('20010203', 'YYYYMMDD')
to_date('2001 034', 'YYYY DDD')
to_date('3 February 2001', 'DD Month YYYY')
to_date('2001-13-01', 'YYYY-MM-DD')
to_char('2002-04-20 17:31:12.66'::timestamp, 'HH12:MI:SS')
to_char('2002-04-20 17:31:12.66'::timestamp, 'Day, DD  HH12:MI:SS')
to_char('2002-04-20 17:31:12.66'::timestamp, 'FMDay, FMDD  HH12:MI:SS')
to_char('2002-04-20 17:31:12.66'::timestamp, 'YYYY-MM-DD"T"HH24:MI:SS.MS')
to_char('2002-04-20 17:31:12.66'::timestamp, 'Dy DDth FMMonth YYYY')
to_char('2002-04-20 17:31:12.66'::timestamp, 'CC WW IW IYYY IDDD Q J D ID W')
to_char('2002-04-20 17:31:12.66+00'::timestamptz, 'TZ tz OF TZH:TZM')
to_char('2002-04-20'::date, 'YYYY/MM/DD')
to_char('15h 2m 12s'::interval, 'HH24:MI:SS')
to_char('3 days 30:00'::interval, 'DD HH24')
to_char(485, '999')
to_char(-485, '999')
to_char(485, '09999')
to_char(1234567, '9,999,999')
to_char(148.5, '999.999')
to_char(148.5, 'FM999.999')
to_char(-0.1, '99.99')
to_char(0, '9.99')
to_char(0.5, '999D99')
to_char(3148.5, '9G999D999')
to_char(485, 'S999')
to_char(-485, '999MI')
to_char(-485, '999PR')
to_char(482, '999th')
to_char(485, 'RN')
to_char(485, 'FMRN')
to_char(12.4, '99V999')
to_char(0.0004859, '9.99EEEE')
to_char(12345, '999')
to_char(125.8::float8, '999D9')
to_char(1e10::float8, '9.9EEEE')
to_number('12,454.8-', '99G999D9S')
to_number('-12.34', 'S99.99')
-- jsonb
'{"a": {"b": [1, 2]}}'::jsonb -> 'a'
'{"a": {"b": [1, 2]}}'::jsonb -> 'a' ->> 'b'
'[1, 2, 3]'::jsonb -> -1
'[1, 2, 3]'::jsonb ->> 5
'{"a": {"b": [1, 2]}}'::jsonb #> '{a,b,1}'
'{"a": {"b": [1, 2]}}'::jsonb #>> '{a,b}'
'{"a": null}'::jsonb ->> 'a'
'{"a": 1, "b": 2}'::jsonb @> '{"b": 2}'
'{"b": 2}'::jsonb <@ '{"a": 1, "b": 2}'
'{"a": 1}'::jsonb ? 'a'
'["a", "b"]'::jsonb ? 'b'
'{"a": 1, "b": 2}'::jsonb ?| '{b,c}'::text[]
'{"a": 1, "b": 2}'::jsonb ?& '{a,b}'::text[]
'{"a": 1}'::jsonb || '{"b": 2}'
'[1]'::jsonb || '2'::jsonb
'{"a": 1, "b": 2}'::jsonb - 'a'
'["a", "b", "a"]'::jsonb - 'a'
'["a", "b"]'::jsonb - 1
'{"a": 1, "b": 2}'::jsonb - '{a,b}'::text[]
'{"a": [1, {"b": 2}]}'::jsonb #- '{a,1,b}'
'1'::jsonb - 'a'
'{"a": 1}'::jsonb = '{"a": 1}'::jsonb
jsonb_set('{"a": [1, 2]}', '{a,0}', '9')
jsonb_set('{"a": 1}', '{b}', '2')
jsonb_set('{"a": 1}', '{b}', '2', false)
jsonb_set('[1]', '{5}', '2')
jsonb_insert('{"a": [0, 1, 2]}', '{a,1}', '"new"')
jsonb_insert('{"a": [0, 1, 2]}', '{a,1}', '"new"', true)
jsonb_build_object('foo', 1, 'bar', 2.50, 'baz', NULL)
jsonb_build_object('foo')
jsonb_build_array(1, 2, 'foo', 4.5, true)
to_jsonb('Fred said "Hi."'::text)
to_jsonb('2020-01-02 03:04:05.6+00'::timestamptz)
to_jsonb('2020-01-02'::date)
to_jsonb('{{1,2},{3,4}}'::int4[])
to_jsonb(1.50)
to_jsonb(1e20::float8)
jsonb_typeof('-123.4')
jsonb_array_length('[1, 2, {"f1": 1}]')
jsonb_array_length('{}')
jsonb_extract_path('{"f2": {"f3": 1}, "f4": {"f5": 99}}', 'f4', 'f5')
jsonb_extract_path_text('{"f4": {"f5": "foo"}}', 'f4', 'f5')
jsonb_pretty('[{"f1": 1, "f2": null}, 2]')
jsonb_strip_nulls('[{"f1": 1, "f2": null}, 2, null]')
jsonb_object('{a,1,b,2}'::text[])
jsonb_object('{a,b}'::text[], '{1,2}'::text[])
-- others
pg_typeof(1 + 1.5)
pg_typeof('a'::varchar || 'b')
pg_typeof(sqrt(4))
pg_typeof('2020-01-01'::date + 1)
pg_typeof(1::int2 + 1::int8)
pg_typeof(1.5::float4 + 1.5)
pg_typeof(2 ^ 3)
pg_typeof('{1}'::int4[] || 1::int8)
pg_size_pretty(1234567890::int8)
pg_size_pretty(-10240::int8)
format_type(1700, 655366)
num_nulls(1, NULL, 'a')
1 + 'a'::text
1 = 'a'::text
nope(1)
round(1.5::float8, 2)
substr(123, 1)
length(5)
true + 1
'2020-01-01'::date + '1'
'a'::text + 'b'::text
