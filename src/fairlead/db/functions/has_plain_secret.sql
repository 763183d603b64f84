-- Whether a payload has a value in plain form at one of the secret paths: a text, a number or a boolean that is neither
-- sealed nor a reference nor empty. The paths are those of model/secrets/redact.py: `*` is any name or index, `**` any number
-- of them. Called only for definitions with secrets, in a database that encrypts.
create or replace function fairlead.has_plain_secret(paths text[], payload jsonb) returns boolean
language plpgsql immutable parallel safe as $$
declare
    path text;
begin
    foreach path in array paths loop
        if fairlead.has_plain_value(payload, (string_to_array(path, '/'))[2:]) then
            return true;
        end if;
    end loop;
    return false;
end
$$;
grant execute on function fairlead.has_plain_secret to fairlead_tenant;
