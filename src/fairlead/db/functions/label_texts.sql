-- Labels with their values as text: a host's labels may also be numbers and booleans.
create or replace function fairlead.label_texts(labels jsonb) returns jsonb language sql immutable parallel safe as $$
    select coalesce(jsonb_object_agg(l.key, l.value), '{}') from jsonb_each_text(label_texts.labels) l
$$;
grant execute on function fairlead.label_texts to fairlead_tenant;
