-- Whether a value has a part in plain form at the end of a path: see has_plain_secret.
create or replace function fairlead.has_plain_value(value jsonb, path text[]) returns boolean
language plpgsql immutable parallel safe as $$
declare
    kind constant text := jsonb_typeof(value);
    name constant text := replace(replace(path[1], '~1', '/'), '~0', '~');
    rest constant text[] := path[2:];
    part jsonb;
begin
    if kind = 'object' and (jsonb_typeof(value -> '$secret') = 'string' and value - '$secret' = '{}'
            or starts_with(value ->> '$sealed', 'sealed:') and value - '{$sealed,$bound}'::text[] = '{}') then
        return false;
    elsif name is null and kind not in ('object', 'array') then
        return value not in ('null', '""');
    elsif name is not null and name not in ('*', '**') then
        return case
            when kind = 'object' and value ? name then fairlead.has_plain_value(value -> name, rest)
            when kind = 'array' and name ~ '^[0-9]{1,9}$' and value -> name::integer is not null
                then fairlead.has_plain_value(value -> name::integer, rest)
            else false end;
    elsif name = '**' then
        -- no step
        if fairlead.has_plain_value(value, rest) then
            return true;
        end if;
    end if;
    -- every part: of a secret, or of what `*` or `**` stands for
    for part in
        select o.value from jsonb_each(case kind when 'object' then value else '{}' end) o
        union all
        select a.value from jsonb_array_elements(case kind when 'array' then value else '[]' end) a
    loop
        if fairlead.has_plain_value(part, case when name = '*' then rest else path end) then
            return true;
        end if;
    end loop;
    return false;
end
$$;
grant execute on function fairlead.has_plain_value to fairlead_tenant;
