-- Null, or the code of a refusal: refuses values that could not be read back or would break a reader, for callers without
-- the library. The library's own limits are settings, and usually narrower.
create or replace function fairlead.refusal_of(
    payload jsonb, priority integer, scheduled_for timestamptz, max_attempts integer, dedupe_key text,
    correlation_id text
) returns text language sql immutable parallel safe as $$
    select case
        when jsonb_typeof(payload) is distinct from 'object' then 'payload_invalid'
        when octet_length(payload::text) > 16777216 then 'payload_too_large'
        when payload @? '$.**{500} ? (@.type() == "object" || @.type() == "array")' then 'payload_too_deep'
        -- more than 1024 bits: outside the range of a double
        when payload @? '$.** ? (@.type() == "number" && (@ > 1.797693134862315907e308 || @ < -1.797693134862315907e308))'
            then 'payload_not_json'
        when abs(priority) > 1000000
            or scheduled_for < '1970-01-01 00:00:00+00' or scheduled_for >= '3000-01-01 00:00:00+00'
            or max_attempts not between 1 and 1000
            or length(dedupe_key) not between 1 and 1048576
            or length(correlation_id) not between 1 and 255
            then 'invalid_input'
        -- reserved for the system
        when starts_with(dedupe_key, 'fairlead:') then 'key_reserved'
    end
$$;
grant execute on function fairlead.refusal_of to fairlead_tenant;
