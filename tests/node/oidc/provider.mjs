// The certified OpenID provider `oidc-provider`, for one client. Every person is an operator; any password is right.
// It gets its options as JSON, and writes its issuer when it listens.
import { generateKeyPairSync } from "node:crypto";
import { createServer } from "node:http";
import Provider from "oidc-provider";

const { client, secret, callback, signedOut, logout } = JSON.parse(process.argv[2]);
const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });

const server = createServer();
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [
      {
        client_id: client,
        client_secret: secret,
        redirect_uris: [callback],
        post_logout_redirect_uris: [signedOut],
        backchannel_logout_uri: logout,
        backchannel_logout_session_required: true,
      },
    ],
    claims: { openid: ["sub", "sid"], email: ["email", "email_verified"], profile: ["groups"] },
    // claims in the ID token itself, as most providers have them
    conformIdTokenClaims: false,
    findAccount: (_, id) => ({
      accountId: id,
      claims: () => ({ sub: id, email: `${id}@example.com`, email_verified: true, groups: ["operators"] }),
    }),
    features: { backchannelLogout: { enabled: true } },
    jwks: { keys: [{ ...privateKey.export({ format: "jwk" }), alg: "RS256", use: "sig", kid: "first" }] },
    // without the dispatcher, which refuses loopback
    fetch: (url, { dispatcher, ...options }) => fetch(url, options),
    cookies: { keys: ["for tests"] },
  });
  server.on("request", provider.callback());
  console.log(issuer);
});
