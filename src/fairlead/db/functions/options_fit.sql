-- Whether the options of an enqueue beyond the old ones are valid, for callers without the library: see model/request.py.
create or replace function fairlead.options_fit(
    tags text[], timeout double precision, expires_in double precision, unique_for double precision, debounce jsonb,
    dedupe_key text, scheduled_for timestamptz
) returns boolean language sql immutable parallel safe as $$
    select coalesce(cardinality(tags), 0) <= 16
        and (tags is null or array_ndims(tags) is not distinct from case when cardinality(tags) > 0 then 1 end)
        and not exists (
            select from unnest(tags) as t(tag)
            where t.tag is null or length(t.tag) not between 1 and 64 or t.tag <> btrim(t.tag, E' \t\n\r\f\v')
                or t.tag ~ E'[,\\x01-\\x1f\\x7f]')
        and (select count(distinct t.tag) = count(*) from unnest(tags) as t(tag))
        and coalesce(timeout between 1 and 2592000, true)
        and coalesce(expires_in > 0 and expires_in <= 315360000, true)
        and (unique_for is null or unique_for > 0 and unique_for <= 315360000 and dedupe_key is not null)
        and (debounce is null or dedupe_key is null and scheduled_for is null
            and jsonb_typeof(debounce) = 'object'
            and debounce - '{key,seconds,max_seconds,payload}'::text[] = '{}'
            and jsonb_typeof(debounce -> 'key') = 'string' and length(debounce ->> 'key') between 1 and 1048576
            and jsonb_typeof(debounce -> 'seconds') = 'number'
            and coalesce(jsonb_typeof(debounce -> 'max_seconds') in ('number', 'null'), true)
            and coalesce(debounce ->> 'payload' in ('last', 'first'), not debounce ? 'payload')
            -- its own case: the values are numbers only if what is above holds
            and case when jsonb_typeof(debounce -> 'seconds') = 'number'
                then (debounce ->> 'seconds')::numeric > 0 and (debounce ->> 'seconds')::numeric <= 315360000
                    and case when jsonb_typeof(debounce -> 'max_seconds') = 'number'
                        then (debounce ->> 'max_seconds')::numeric between (debounce ->> 'seconds')::numeric and 315360000
                        else true end
                else false end)
$$;
grant execute on function fairlead.options_fit to fairlead_tenant;
